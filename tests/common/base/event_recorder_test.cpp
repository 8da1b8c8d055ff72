// Recorded events are read as they were emitted, and damaged files are refused in one line.
#include <array>
#include <bit>
#include <chrono>
#include <cstring>
#include <limits>
#include <map>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <catch2/catch.hpp>
#include <fmt/format.h>

#include <psring/common/base/crc32c.h>
#include <psring/common/base/error.h>
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

/// Puts a head before a body, as the recorder does.
std::string part_of(std::string_view body) {
  std::string head = "PSEV\x02";
  const auto put = [&](std::uint32_t value) { head.append(std::bit_cast<std::array<char, 4>>(value).data(), 4); };
  put(static_cast<std::uint32_t>(body.size()));
  put(crc32c(std::as_bytes(std::span(body.data(), body.size()))));
  return head.append(body);
}

const std::string kHead("\x08worker 0\x01\x05\x00\x00\x00\x00", 15);

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
  const auto wait = [](Moment start, Nanoseconds duration) {
    return Event{start, duration, 7, Activity{.name = "wait", .peer = {"worker", 1}}};
  };
  const auto push = [](Moment start, std::uint64_t i) {
    return Event{start, Nanoseconds{0}, 7, FrameMoved{false, 0, "push", {"server", 1}, 2 * i, {0, 9}, 36, i}};
  };
  for (std::uint64_t i = 1; i <= 3; ++i) {
    stream.recorder.on_event(wait(stream.clock.at, microseconds(1 + i)));
    stream.recorder.on_event(push(stream.clock.at + microseconds(1 + i), i));
  }
  const std::string bytes = stream.take({.process = "worker 0", .number = 1, .epoch = 2, .offset = Nanoseconds(-3)});
  const auto raw = [](const auto& text) { return std::string_view(text, sizeof text - 1); };
  // process, number, stream (1,002,000), epoch, offset, base (1,002,000), dropped
  CHECK(bytes.substr(13, 19) == raw("\x08worker 0\x01\x90\x94\x3d\x02\x05\xa0\xa8\x7a\x00"));
  // head; pattern: new, kind, source, name, unit, layer, peer, bytes; end, duration (2,000), step
  CHECK(bytes.substr(32, 27) == raw("\x07\x00\x01\x01\x00\x04wait\x00\x00\x00\x08worker 1\x00\x00\xd0\x0f\x0e"));
  // head; pattern: new, kind, source, flags, operation, peer, unit, range, bytes; end, growth of number and version
  CHECK(bytes.substr(59, 28) == raw("\x09\x00\x04\x01\x00\x00\x04push\x00\x08server 1\x01\x00\x09\x24\x00\x04\x02"));
  // head; pattern 1; end (1,000 later), duration (3,000). Then the pattern that follows it: head, end
  CHECK(bytes.substr(87, 8) == raw("\x03\x01\xd0\x0f\xb8\x17\x00\x00"));
  // the whole round in its order: head, end, duration (4,000), and head, end
  CHECK(bytes.substr(95) == raw("\x02\xd0\x0f\xa0\x1f\x00\x00"));
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

TEST_CASE("a part with many patterns ends, and the next one is read by itself") {
  RecordedStream stream;
  constexpr std::size_t kMany = kMostPatterns + 100;
  for (std::size_t i = 0; i < kMany; ++i) stream.events.instant(GradientReady{{i, i + 1}});
  const KeptEvents kept = Reader().read(stream.take());
  CHECK(kept.parts.size() == 2);
  CHECK(kept.events.size() == kMany);
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
  const std::string first = stream.take();
  CHECK(first.size() > EventRecorder::kMostBytes);
  CHECK(first.size() < EventRecorder::kMostBytes + 2 * EventRecorder::kPartBytes);
  KeptEvents kept = Reader().read(first);
  CHECK(kept.parts.size() > EventRecorder::kMostBytes / EventRecorder::kPartBytes);
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
  RecordedStream stream;
  emit_all(stream);
  std::string body = stream.take().substr(kPartHeadBytes);
  const Reader reader;
  std::size_t refused = 0;
  for (std::size_t bit = 0; bit < body.size() * 8; ++bit) {
    const auto flip = [&] { body[bit / 8] = static_cast<char>(body[bit / 8] ^ (1 << bit % 8)); };
    flip();
    refused += reader.error(part_of(body)).empty() ? 0 : 1;
    flip();
  }
  CHECK(refused > body.size());
  for (std::size_t size = 0; size < body.size(); ++size) reader.error(part_of(body.substr(0, size)));
}

TEST_CASE("the line of an error says what is wrong, and where") {
  const Reader reader;
  const auto refused = [&](const std::string& bytes, const std::string& what) {
    CHECK(reader.error(bytes) == reader.path() + ": " + what);
  };
  REQUIRE(reader.error(part_of(kHead)).empty());
  refused("{\"traceEvents\":[]}", "byte 0: no part of recorded events begins here");
  refused("PSEV\x01" + part_of(kHead).substr(5), "byte 4: events of version 1, expected 2");
  refused(std::string("PSEV\x02\xff\xff\xff\xff\0\0\0\0", 13),
          "byte 5: a part of 4294967295 bytes, expected at most 16777216");
  refused(part_of(kHead) + "PS", "byte 28: the file is cut: 2 bytes of a part's head");
  const auto record = [](std::string_view bytes) { return part_of(kHead + std::string(bytes)); };
  const auto raw = [](const auto& text) { return std::string_view(text, sizeof text - 1); };
  refused(record(raw("\x10")), "byte 29: the head 0x10 of a record, expected at most 0x0f");
  refused(record(raw("\x00\x00")), "byte 29: a record without a pattern, where none has followed yet");
  refused(record(raw("\x01\x01")), "byte 30: the number of a pattern 1, expected less than 1");
  refused(record(raw("\x01\x00\x09")), "byte 31: the kind of an event 9, expected less than 9");
  refused(record(raw("\x01\x00\x03\x01\x01")), "byte 33: the number of a text 1, expected less than 1");
  refused(record(raw("\x01\x00\x03\x02")), "byte 32: the number of a line of source 2, expected less than 2");
  refused(record(raw("\x01\x00\x03\x01\x00\x05"
                     "ab")),
          "byte 34: 2 bytes are left of the part, expected 5");
  refused(record(raw("\x01\x00\x03\x01\x00\x81\x08")), "byte 35: a text of size 1025, expected less than 1025");
  refused(record(raw("\x01\x00\x05\x01\x04\x00\x00")), "byte 33: flags 0x04, expected at most 0x03");
  const std::string known(raw("\x01\x00\x06\x01\x00\x00\x00"));
  refused(record(known + "\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02"), "byte 45: a number of more than 64 bits");
  refused(record(known + "\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"), "byte 45: a time out of bounds");
  CHECK(reader.error(record(raw("\x01\x00\x06\x01\x00\x01\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01")))
            .ends_with("a range beyond 64 bits"));
  std::string many;
  const auto put = [&](std::uint64_t number) {
    for (; number >= 0x80; number >>= 7) many += static_cast<char>(number | 0x80);
    many += static_cast<char>(number);
  };
  for (std::size_t i = 0; i <= kMostPatterns; ++i) {
    many.append(raw("\x01\x00\x06\x01\x00"));
    put(i);
    many.append(raw("\x00\x00"));
  }
  CHECK(reader.error(record(many)).ends_with("too many patterns in a part"));
  KeptEvents kept;
  CHECK_THROWS_AS(read_events(reader.path() + ".none", kept), Error);
}
