// Recorded events are read as they were emitted, and damaged files are refused in one line.
#include <array>
#include <bit>
#include <chrono>
#include <cstring>
#include <limits>
#include <map>
#include <random>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include <catch2/catch.hpp>
#include <fmt/format.h>
#include <zlib.h>

#include <psring/common/base/crc32c.h>
#include <psring/common/base/text/error.h>
#include <psring/tests/support/recorded_events.h>
#include <psring/tests/support/temporary_folder.h>

using namespace psring;
using std::chrono::microseconds;
using test::KeptEvents;
using test::RecordedStream;

namespace {

class Reader {
 public:
  KeptEvents read(std::string_view bytes) const {
    KeptEvents kept;
    read_events(test::write_file(path(), bytes), kept);
    return kept;
  }
  /// Returns the error's line, or "" if the bytes are read to their end.
  std::string error(std::string_view bytes) const {
    try {
      read(bytes);
      return "";
    } catch (const Error& error) {
      CHECK(error.kind() == ErrorKind::data);
      return error.what();
    }
  }
  std::string path() const { return folder_.file("worker-0.events"); }

 private:
  const test::TemporaryFolder folder_;
};

/// Makes a part as the recorder does.
std::string part_of(std::string_view texts, const std::vector<EventRecord>& records, EventPartHead head = {}) {
  std::string body(texts);
  for (std::size_t at = 0; at < sizeof(EventRecord); ++at)
    for (const EventRecord& record : records) body += reinterpret_cast<const char*>(&record)[at];
  std::string deflated(compressBound(body.size()), '\0');
  uLongf size = deflated.size();
  REQUIRE(compress2(reinterpret_cast<Bytef*>(deflated.data()), &size, reinterpret_cast<const Bytef*>(body.data()),
                    body.size(), 1) == Z_OK);
  head.size = static_cast<std::uint32_t>(size);
  if (head.text_bytes == 0) head.text_bytes = static_cast<std::uint32_t>(texts.size());
  if (head.records == 0) head.records = static_cast<std::uint32_t>(records.size());
  std::string part = std::string(reinterpret_cast<const char*>(&head), sizeof head) + deflated.substr(0, size);
  head.check = crc32c(std::as_bytes(std::span(part)));
  return part.replace(0, sizeof head, reinterpret_cast<const char*>(&head), sizeof head);
}

/// Emits an event of each kind.
void emit_all(RecordedStream& stream) {
  Events& events = stream.events;
  events.name(UnitNames{{"embedding", "layers.0", ""}});
  events.begin_step(7);
  {
    const Events::Span span(events, {.name = "forward", .unit = 1, .layer = 3, .peer = {"worker", 1}, .bytes = 64});
    stream.pass(std::chrono::nanoseconds(1500));
  }
  {
    const Events::Flight flight(events, {"all_reduce", {0, 2}, std::uint64_t{1} << 40});
    stream.pass(microseconds(3));
  }
  events.detail(DeviceWork{"forward 3"}, events.step(), stream.clock.at - microseconds(900), microseconds(5));
  events.instant(FrameMoved{true, kNone, "push_pull", {"server", 1}, 4, {256, 512}, 1024, UINT64_MAX});
  events.instant(Presence{Presence::Values::gradients, 2, false, 4096});
  events.instant(Presence{Presence::Values::parameters, 0, true, 1});
  events.begin_step(2);
  events.instant(GradientReady{{1, 3}, true});
  events.report(StepReport{2, 1, std::numeric_limits<double>::infinity(), 12, microseconds(40), microseconds(3), 0.25});
  events.report(Evaluation{3, -2.5, 100, 7});
}

}  // namespace

TEST_CASE("every kind of event is read as it was emitted") {
  RecordedStream stream;
  emit_all(stream);
  const EventOrigin origin{.process = "worker 3", .number = 4, .epoch = 2, .offset = microseconds(-50)};
  const KeptEvents kept = Reader().read(stream.take(origin));
  REQUIRE(kept.parts.size() == 1);
  CHECK(kept.parts[0].origin.process == "worker 3");
  CHECK(kept.parts[0].origin.number == 4);
  CHECK(kept.parts[0].origin.epoch == 2);
  CHECK(kept.parts[0].origin.offset == microseconds(-50));
  CHECK(kept.parts[0].dropped == 0);
  REQUIRE(kept.events.size() == 10);
  const auto event = [&](std::size_t i) -> const Event& { return kept.events[i].event; };

  CHECK(std::get<UnitNames>(event(0).what).names == std::vector<std::string>{"embedding", "layers.0", ""});
  CHECK(event(0).start == Moment{microseconds(1000)});
  const auto& activity = std::get<Activity>(event(1).what);
  CHECK(activity.name == "forward");
  CHECK(std::tuple(activity.unit, activity.layer, activity.peer, activity.bytes) ==
        std::tuple(1U, 3U, PeerName{"worker", 1}, 64U));
  CHECK(event(1).start == Moment{microseconds(1000)});
  CHECK(event(1).duration == std::chrono::nanoseconds(1500));
  CHECK(event(1).step == 7);
  const auto& transfer = std::get<Transfer>(event(2).what);
  CHECK(transfer.name == "all_reduce");
  CHECK(transfer.units == Range{0, 2});
  CHECK(transfer.bytes == std::uint64_t{1} << 40);
  CHECK(std::get<DeviceWork>(event(3).what).name == "forward 3");
  CHECK(event(3).start == stream.clock.at - microseconds(900));
  CHECK(event(3).duration == microseconds(5));
  const auto& frame = std::get<FrameMoved>(event(4).what);
  CHECK(frame.operation == "push_pull");
  CHECK(std::tuple(frame.arrived, frame.peer, frame.number, frame.unit) ==
        std::tuple(true, PeerName{"server", 1}, 4U, kNone));
  CHECK(frame.range == Range{256, 512});
  CHECK(std::tuple(frame.bytes, frame.version) == std::tuple(1024U, UINT64_MAX));
  const auto& dropped = std::get<Presence>(event(5).what);
  CHECK(dropped.values == Presence::Values::gradients);
  CHECK(std::tuple(dropped.unit, dropped.here, dropped.bytes) == std::tuple(2U, false, 4096U));
  const auto& held = std::get<Presence>(event(6).what);
  CHECK(held.values == Presence::Values::parameters);
  CHECK(held.here);
  const auto& ready = std::get<GradientReady>(event(7).what);
  CHECK(ready.units == Range{1, 3});
  CHECK(ready.averaged);
  CHECK(event(7).step == 2);
  const auto& report = std::get<StepReport>(event(8).what);
  CHECK(std::tuple(report.step, report.epoch, report.samples, report.duration, report.exposed, report.staleness) ==
        std::tuple(2U, 1U, 12U, microseconds(40), microseconds(3), 0.25));
  CHECK(report.loss == std::numeric_limits<double>::infinity());
  CHECK(event(8).start == stream.clock.at - microseconds(40));
  const auto& evaluation = std::get<Evaluation>(event(9).what);
  CHECK(std::tuple(evaluation.step, evaluation.loss_sum, evaluation.rows, evaluation.correct) ==
        std::tuple(3U, -2.5, 100U, 7U));
}

TEST_CASE("details are kept of the first ten steps and of every tenth") {
  for (const bool is_watched : {false, true}) {
    const test::HandClock clock{Moment{microseconds(1000)}};
    EventRecorder recorder;
    SharedCell<Present> cell;
    Events events{clock};
    events.record(recorder, false);
    if (is_watched) events.show_present(cell);
    constexpr std::array<std::uint64_t, 6> kSteps{0, 9, 10, 11, 19, 20};
    events.begin_step(11);
    events.name({{"layers.0"}});
    Events::Flight crossing;  // begins in each step, and lands in the next one
    for (const std::uint64_t step : kSteps) {
      events.begin_step(step);
      crossing = Events::Flight();
      crossing = Events::Flight(events, {"all_gather", {0, 1}, 8});
      if (step == 19) {
        events.end_step();
        Events::Flight(events, {"evaluation", {0, 1}, 8}).land();  // is not part of the next step
        events.begin_step(step);
      }
      events.instant(GradientReady{{0, 1}});
      events.instant(FrameMoved{.operation = "push", .peer = {"server", 0}}, step);
      {
        const Events::Span work(events, {.name = "push", .serves_frame = true}, step);
        const Events::Span update(events, {.name = "update"}, step);
      }
      const Events::Span whole(events, {.name = "step"});
      { const Events::Span forward(events, {.name = "forward"}); }
      Events::Flight(events, {"all_reduce", {0, 1}, 8}).land();
      Nanoseconds waited{0};
      const Events::Wait wait(events, {.name = "wait"}, waited);
    }
    std::string bytes;
    for (const EventRecorder::Bytes& part : recorder.take({.process = "worker 0", .number = 1}))
      bytes.append(reinterpret_cast<const char*>(part.data()), part.size());
    std::map<std::string, std::vector<std::uint64_t>> steps;
    const KeptEvents kept = Reader().read(bytes);
    for (const auto& [event, file, function, line] : kept.events) {
      const auto* activity = std::get_if<Activity>(&event.what);
      const auto* transfer = std::get_if<Transfer>(&event.what);
      const std::string name = activity != nullptr                              ? std::string(activity->name)
                               : transfer != nullptr                            ? std::string(transfer->name)
                               : std::holds_alternative<FrameMoved>(event.what) ? "frame"
                               : std::holds_alternative<UnitNames>(event.what)  ? "names"
                                                                                : "ready";
      steps[name].push_back(event.step);
    }
    using Steps = std::vector<std::uint64_t>;
    const Steps some{0, 9, 10, 20};
    CHECK(steps["names"] == Steps{11});
    CHECK(steps["ready"] == some);
    CHECK(steps["frame"] == some);
    CHECK(steps["push"] == some);
    for (const char* name : {"update", "forward", "wait"}) CHECK(steps[name] == some);
    // A transfer of the step before may be in flight in a step with details.
    CHECK(steps["all_reduce"] == Steps{0, 9, 10, 19, 20});
    CHECK(steps["all_gather"] == Steps{9, 10, 11, 20});
    CHECK(steps["evaluation"].empty());
    CHECK(steps["step"] == Steps(kSteps.begin(), kSteps.end()));
    CHECK(cell.read().step == (is_watched ? kSteps.back() : 0));
  }
}

TEST_CASE("a detail names the line that emitted it, and a report names none") {
  RecordedStream stream;
  for (int i = 0; i < 2; ++i) {
    stream.events.instant(DeviceWork{"a"});
    stream.events.instant(DeviceWork{"b"});
  }
  const int line = __LINE__ - 3;
  stream.events.report(StepReport{});
  const KeptEvents kept = Reader().read(stream.take());
  REQUIRE(kept.events.size() == 5);
  for (std::size_t i = 0; i < 4; ++i) {
    CHECK(kept.events[i].file == __FILE__);
    CHECK(kept.events[i].line == static_cast<std::uint64_t>(line + static_cast<int>(i % 2)));
    CHECK_FALSE(kept.events[i].function.empty());
  }
  CHECK(kept.events[4].line == 0);
}

TEST_CASE("a record takes few bytes, as docs/events.md says") {
  RecordedStream stream;
  std::mt19937_64 random(1);
  const std::size_t empty = stream.take().size();
  constexpr std::uint64_t kRounds = 5'000;
  for (std::uint64_t i = 0; i < kRounds; ++i) {
    const Nanoseconds duration(1000 + random() % 256);
    stream.recorder.on_event({stream.clock.at, duration, i / 10, Activity{.name = "wait", .peer = {"worker", 1}}});
    stream.pass(duration + Nanoseconds(random() % 256));
    stream.recorder.on_event(
        {stream.clock.at, Nanoseconds{0}, i / 10, FrameMoved{false, 0, "push", {"server", 1}, 2 * i, {0, 9}, 36, i}});
  }
  const std::size_t bytes = stream.take().size();
  CHECK(empty == 0);
  CHECK(bytes < 2 * kRounds * 8);
}

TEST_CASE("a part has the bytes that docs/events.md describes") {
  RecordedStream stream;
  for (std::uint64_t i = 1; i <= 2; ++i)
    stream.recorder.on_event(
        {stream.clock.at, microseconds(i), 7,
         Activity{.name = "wait", .unit = 3, .peer = {"worker", 1}, .bytes = std::uint64_t{1} << 32}});
  const std::string bytes = stream.take({.process = "worker 0", .number = 1, .epoch = 2, .offset = Nanoseconds(-3)});
  EventPartHead head{.number = 1, .epoch = 2, .offset = -3, .stream = 1'001'000, .base = 1'001'000};
  std::memcpy(head.process.data(), "worker 0", 8);
  EventRecord upper{.bytes = 1, .state = EventRecord::kUpper};
  EventRecord wait{.name = 1, .count = 1000, .begin = kNone, .unit = 3, .rank = 1, .step = 7, .role = 1, .state = 1};
  std::vector<EventRecord> records{upper, wait, upper, wait};
  records[3].end = 1000;
  records[3].count = 2000;
  CHECK(bytes == part_of(std::string("\0wait\0", 6), records, head));
}

TEST_CASE("events that repeat, in any order, are read as they were emitted") {
  RecordedStream stream;
  std::mt19937_64 random(1);
  const auto below = [&](std::uint64_t bound) { return random() % bound; };
  std::vector<Event> emitted;
  const std::string longer(40, 'x');
  for (std::uint64_t i = 0; i < 20'000; ++i) {
    const std::uint64_t step = i / 50 + below(2);
    const Moment start = stream.clock.at - Nanoseconds(below(2000));
    const Nanoseconds duration(below(2) == 0 ? 0 : below(5000));
    Event event{start, duration, step, DeviceWork{below(2) == 0 ? "forward" : longer}};
    switch (i % 50 < 40 ? i % 5 : below(7)) {  // 40 events come in order
      case 0:
        event.what = FrameMoved{below(2) == 0, 1,  "push",  {"server", static_cast<std::uint32_t>(i % 3)}, i,
                                {0, 4},        16, random()};
        break;
      case 1:
        event.what = FrameMoved{false, 1, "push", {"server", 1}, i, {0, 4}, 16, step};
        break;
      case 2:
        event.what = Activity{"forward", static_cast<std::uint32_t>(below(3)), kNone, {}, below(2)};
        break;
      case 3:
        event.what = Transfer{"push", {0, 1 + below(2)}, 7};
        break;
      case 4:
        event.what = Presence{Presence::Values::gradients, 1, below(2) == 0, 8};
        break;
      case 5:
        event.what = StepReport{.step = step, .loss = 1.0 / static_cast<double>(1 + i)};
        break;
      default:
        break;
    }
    if (std::holds_alternative<FrameMoved>(event.what)) event.duration = Nanoseconds{0};
    if (auto* report = std::get_if<StepReport>(&event.what)) report->duration = duration;
    stream.recorder.on_event(event);
    emitted.push_back(event);
    stream.pass(Nanoseconds(below(1000)));
  }
  const KeptEvents kept = Reader().read(stream.take());
  REQUIRE(kept.events.size() == emitted.size());
  const auto same = [](const Event& one, const Event& other) {
    if (one.start != other.start || one.duration != other.duration || one.step != other.step) return false;
    if (one.what.index() != other.what.index()) return false;
    if (const auto* what = std::get_if<FrameMoved>(&one.what)) {
      const auto& read = std::get<FrameMoved>(other.what);
      return std::tuple(what->arrived, what->unit, what->operation, what->peer, what->number, what->range, what->bytes,
                        what->version) == std::tuple(read.arrived, read.unit, read.operation, read.peer, read.number,
                                                     read.range, read.bytes, read.version);
    }
    if (const auto* what = std::get_if<Activity>(&one.what)) {
      const auto& read = std::get<Activity>(other.what);
      return std::tuple(what->name, what->unit, what->layer, what->peer, what->bytes) ==
             std::tuple(read.name, read.unit, read.layer, read.peer, read.bytes);
    }
    if (const auto* what = std::get_if<Transfer>(&one.what)) {
      const auto& read = std::get<Transfer>(other.what);
      return std::tuple(what->name, what->units, what->bytes) == std::tuple(read.name, read.units, read.bytes);
    }
    if (const auto* what = std::get_if<Presence>(&one.what)) return what->here == std::get<Presence>(other.what).here;
    if (const auto* what = std::get_if<StepReport>(&one.what))
      return what->step == std::get<StepReport>(other.what).step && what->loss == std::get<StepReport>(other.what).loss;
    return std::get<DeviceWork>(one.what).name == std::get<DeviceWork>(other.what).name;
  };
  for (std::size_t i = 0; i < emitted.size(); ++i) {
    INFO(i);
    REQUIRE(same(emitted[i], kept.events[i].event));
  }
}

TEST_CASE("a part of 1 MiB ends, and the next one is read by itself") {
  RecordedStream stream;
  stream.events.name(UnitNames{{"layers.0"}});
  constexpr std::size_t kMany = 2 * kPartRecords;
  for (std::size_t i = 0; i < kMany; ++i) stream.events.instant(Presence{.bytes = std::uint64_t{1} << i % 63});
  const KeptEvents kept = Reader().read(stream.take());
  CHECK(kept.parts.size() == 3);  // half of the records are preceded by their upper halves, and not cut off from them
  std::size_t found = 0;
  for (const KeptEvents::Kept& one : kept.events)
    if (const auto* presence = std::get_if<Presence>(&one.event.what))
      found += presence->bytes == std::uint64_t{1} << found % 63 ? 1 : 0;
  CHECK(found == kMany);
}

TEST_CASE("a part with many texts ends, and the next one is read by itself") {
  RecordedStream stream;
  constexpr std::size_t kMany = 3 * kMostTextsBytes / kMostTextBytes / 4;
  for (std::size_t i = 0; i < kMany; ++i)
    stream.events.instant(DeviceWork{std::string(kMostTextBytes - 6, 'x') + fmt::format("{:06}", i)});
  const KeptEvents kept = Reader().read(stream.take());
  CHECK(kept.parts.size() == 2);
  REQUIRE(kept.events.size() == kMany);
  for (std::size_t i = 0; i < kMany; ++i)
    REQUIRE(std::get<DeviceWork>(kept.events[i].event.what).name.ends_with(fmt::format("{:06}", i)));
}

TEST_CASE("parts that are full are deflated before they are taken") {
  RecordedStream stream;
  std::stop_source stop;
  std::jthread deflater([&] { stream.recorder.deflate_for(std::chrono::hours(1), stop.get_token()); });
  constexpr std::size_t kMany = 2 * EventRecorder::kMostBytes / sizeof(EventRecord);
  std::size_t emitted = 0;
  std::size_t dropped = 0;
  for (; emitted < kMany; ++emitted) {
    stream.events.instant(GradientReady{{0, 1}});
    if (emitted % kPartRecords == 0) std::this_thread::yield();
  }
  stop.request_stop();
  deflater.join();
  const KeptEvents kept = Reader().read(stream.take());
  for (const RecordedPart& part : kept.parts) dropped += part.dropped;
  CHECK(kept.events.size() + dropped == kMany);
  CHECK(kept.events.size() > EventRecorder::kMostBytes / sizeof(EventRecord) / 2);
}

TEST_CASE("parts can be read by themselves and in any order, and repeat the units' names") {
  RecordedStream stream;
  stream.events.name(UnitNames{{"layers.0"}});
  std::vector<std::string> parts;
  for (int i = 0; i < 3; ++i) {
    stream.pass(microseconds(10));
    stream.events.instant(DeviceWork{"forward"});
    parts.push_back(stream.take());
  }
  CHECK(stream.take().empty());
  const Reader reader;
  const KeptEvents kept = reader.read(parts[2] + parts[0] + parts[1]);
  REQUIRE(kept.parts.size() == 3);
  REQUIRE(kept.events.size() == 6);
  CHECK(kept.parts[0].stream == kept.parts[2].stream);
  for (std::size_t i = 0; i < 6; i += 2) {
    CHECK(std::get<UnitNames>(kept.events[i].event.what).names == std::vector<std::string>{"layers.0"});
    CHECK(std::get<DeviceWork>(kept.events[i + 1].event.what).name == "forward");
  }
  CHECK(kept.events[1].event.start == Moment{microseconds(1030)});
  CHECK(kept.events[3].event.start == Moment{microseconds(1010)});
  CHECK(reader.read("").parts.empty());
}

TEST_CASE("the recorder's memory is bounded: events above it are counted") {
  RecordedStream stream;
  constexpr std::size_t kMany = 1'500'000;
  for (std::size_t i = 0; i < kMany; ++i) stream.events.instant(GradientReady{{i, i + 1}});
  KeptEvents kept = Reader().read(stream.take());
  REQUIRE(kept.parts.size() == EventRecorder::kMostBytes / (kPartRecords * sizeof(EventRecord)) + 1);
  CHECK(kept.events.size() > EventRecorder::kMostBytes / sizeof(EventRecord) - 100);
  CHECK(kept.events.size() + kept.parts.back().dropped == kMany);
  stream.events.instant(DeviceWork{"forward"});
  kept = Reader().read(stream.take());
  CHECK(kept.events.size() == 1);
  CHECK(kept.parts[0].dropped == 0);
}

TEST_CASE("threads may emit events while parts are taken") {
  RecordedStream stream;
  std::string bytes;
  constexpr int kEach = 20'000;
  {
    const auto emit = [&] {
      for (int i = 0; i < kEach; ++i) stream.events.instant(DeviceWork{"forward"});
    };
    const std::jthread one(emit);
    const std::jthread other(emit);
    const std::jthread taker([&] {
      for (int i = 0; i < 50; ++i) bytes += stream.take();
    });
    for (int i = 0; i < kEach; ++i) {  // the owner's events: of a common kind, with values, and too large for the stage
      stream.events.instant(GradientReady{{0, 1}});
      stream.events.report(StepReport{.step = static_cast<std::uint64_t>(i)});
      stream.events.instant(Presence{.bytes = std::uint64_t{1} << 40});
    }
  }
  bytes += stream.take();
  const KeptEvents kept = Reader().read(bytes);
  CHECK(kept.events.size() == 5 * kEach);
  std::uint64_t steps = 0;
  bool in_order = true;
  for (const KeptEvents::Kept& one : kept.events)
    if (const auto* report = std::get_if<StepReport>(&one.event.what)) in_order = in_order && report->step == steps++;
  CHECK(in_order);
  CHECK(steps == kEach);
}

TEST_CASE("texts and lists that are too long are cut") {
  RecordedStream stream;
  stream.events.name(UnitNames{std::vector<std::string>(kMostNames + 1, "unit")});
  stream.events.instant(DeviceWork{std::string(kMostTextBytes + 1, 'x')});
  const KeptEvents kept = Reader().read(stream.take());
  CHECK(std::get<UnitNames>(kept.events.at(0).event.what).names.size() == kMostNames);
  CHECK(std::get<DeviceWork>(kept.events.at(1).event.what).name.size() == kMostTextBytes);
}

TEST_CASE("a file that is cut at any byte is refused, but between two parts") {
  RecordedStream stream;
  emit_all(stream);
  const std::string first = stream.take();
  emit_all(stream);
  const std::string whole = first + stream.take();
  const Reader reader;
  for (std::size_t size = 0; size < whole.size(); ++size) {
    const std::string error = reader.error(whole.substr(0, size));
    INFO(size << ": " << error);
    if (size == 0 || size == first.size()) {
      REQUIRE(error.empty());
    } else {
      REQUIRE(error.starts_with(reader.path() + ": byte "));
      REQUIRE(error.find("the file is cut") != std::string::npos);
    }
  }
}

TEST_CASE("a flipped bit is found") {
  RecordedStream stream;
  emit_all(stream);
  std::string bytes = stream.take();
  const Reader reader;
  for (std::size_t bit = 0; bit < bytes.size() * 8; ++bit) {
    const auto flip = [&] { bytes[bit / 8] = static_cast<char>(bytes[bit / 8] ^ (1 << bit % 8)); };
    flip();
    INFO(bit);
    REQUIRE(reader.error(bytes).starts_with(reader.path() + ": byte "));
    flip();
  }
}

TEST_CASE("a body that is damaged, with the right checksum, is read or refused") {
  const Reader reader;
  const std::string texts(
      "\0wait\0file\0function\0"
      "7\0",
      23);
  std::size_t refused = 0;
  for (std::uint8_t kind = 0; kind <= EventRecord::kKind; ++kind)
    for (std::size_t bit = 0; bit < sizeof(EventRecord) * 8; ++bit) {
      std::vector<EventRecord> records(2, EventRecord{.source = 2, .name = 1, .state = kind});
      reinterpret_cast<std::uint8_t*>(records.data())[bit / 8] ^= static_cast<std::uint8_t>(1 << bit % 8);
      refused += reader.error(part_of(texts, records)).empty() ? 0 : 1;
    }
  CHECK(refused > 1000);
}

TEST_CASE("the line of an error says what is wrong, and where") {
  const Reader reader;
  const auto refused = [&](const std::string& bytes, const std::string& what) {
    CHECK(reader.error(bytes) == reader.path() + ": " + what);
  };
  const std::string texts(1, '\0');
  const std::string good = part_of(texts, {});
  REQUIRE(reader.error(good).empty());
  refused("{\"traceEvents\":[]}", "byte 0: no part of recorded events begins here");
  refused(std::string("PSEV\x02\x0f\0\0\0", 9), "byte 4: events of version 2, expected 3");
  refused(good + "PS", fmt::format("byte {}: the file is cut: 2 bytes of a part's head", good.size()));
  refused(good.substr(0, 97), fmt::format("byte 8: the file is cut: 1 of {} bytes of a part", good.size() - 96));
  refused(part_of(texts, {}, {.records = kPartRecords + 1}),
          "byte 12: a part of 1 bytes of texts and 16385 records, expected 1 to 16777216 and at most 16384");
  refused(part_of(texts, {}, {.text_bytes = kMostTextsBytes + 1}),
          "byte 12: a part of 16777217 bytes of texts and 0 records, expected 1 to 16777216 and at most 16384");
  refused(part_of(texts, {}, {.offset = kMostTime + 1}), "byte 96: a time out of bounds");
  refused(part_of(texts, {}, {.records = 1}), "byte 96: a part that zlib refuses");
  refused(part_of("x", {}), "byte 96: a part that zlib refuses");
  refused(part_of(std::string(kMostTextBytes + 1, 'x') + texts, {}), "byte 96: a text that is too long");
  const auto record = [&](const EventRecord& one) { return part_of(texts, {one}); };
  refused(record({.state = 9}), "byte 96: an event of a kind that is unknown");
  refused(record({.name = 1, .state = 3}), "byte 96: a text of a number that is too large");
  refused(record({.source = 1, .state = 5}), "byte 96: a text of a number that is too large");
  refused(record({.size = kMostNames + 1, .state = 0}), "byte 96: too many names of units");
  refused(record({.role = 6, .state = 1}), "byte 96: a role that is unknown");
  refused(record({.end = kMostTime + 1, .state = 5}), "byte 96: a time out of bounds");
  refused(record({.count = std::uint64_t{kMostTime} + 1, .state = 5}), "byte 96: a time out of bounds");
  refused(part_of(texts, {{.begin = kNone, .size = kNone, .state = EventRecord::kUpper},
                          {.begin = kNone, .size = 1, .state = 6}}),
          "byte 96: a range beyond 64 bits");
  KeptEvents kept;
  CHECK_THROWS_AS(read_events(reader.path() + ".none", kept), Error);
}
