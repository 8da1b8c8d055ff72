// The stream of events, and its view in the Chrome trace format.
#include <filesystem>
#include <utility>

#include <catch2/catch.hpp>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <psring/common/base/text/error.h>
#include <psring/tests/support/recorded_events.h>
#include <psring/tests/support/temporary_folder.h>
#include <psring/view/trace_file.h>

using namespace psring;
using nlohmann::json;

namespace {

/// The stream of a process whose events are recorded in a run folder.
struct Scene : test::RecordedStream {
  /// Returns the trace of all that was recorded so far.
  json take(const std::string& process = "worker 0", Nanoseconds offset = Nanoseconds{0}, std::uint64_t epoch = 0) {
    recorded += RecordedStream::take({.process = process, .number = 1, .epoch = epoch, .offset = offset});
    std::filesystem::create_directories(folder.file("events"));
    test::write_file(folder.file("events/worker-0.events"), recorded);
    return json::parse(test::read_file(view::write_trace(folder.path()).string()))["traceEvents"];
  }

  test::TemporaryFolder folder;
  std::string recorded;
};

using std::chrono::microseconds;

}  // namespace

TEST_CASE("activities become slices on the job's clock, inner ones first, that name unit and step") {
  Scene scene;
  scene.events.name(UnitNames{{"embedding", "layers.0"}});
  scene.events.begin_step(7);
  {
    const Events::Span step(scene.events, {.name = "step"});
    scene.pass(std::chrono::nanoseconds(1500));
    {
      const Events::Span forward(scene.events, {.name = "forward", .unit = 1, .layer = 3});
      scene.pass(microseconds(4));
    }
    { const Events::Span acquire(scene.events, {.name = "acquire", .unit = 0}); }
    scene.pass(microseconds(1));
  }
  const json events = scene.take("worker 3", microseconds(50));
  REQUIRE(events.size() == 4);
  CHECK(events[0]["ph"] == "M");
  CHECK(events[0]["args"]["name"] == "worker 3");
  CHECK(events[1]["name"] == "forward 3");
  CHECK(events[1]["args"] == json({{"step", 7}, {"unit", "layers.0"}}));
  CHECK(events[1]["ts"] == 1051.5);
  CHECK(events[1]["dur"] == 4.0);
  CHECK(events[2]["name"] == "acquire embedding");
  CHECK(events[3]["name"] == "step");
  CHECK(events[3]["ts"] == 1050.0);
  CHECK(events[3]["dur"] == 6.5);
  for (const json& event : events) CHECK(event["pid"] == 1);
  CHECK(scene.RecordedStream::take().empty());  // forgotten
}

TEST_CASE("a server's work names the peer, and an unknown unit by its number") {
  Scene scene;
  { const Events::Span span(scene.events, {.name = "push", .unit = 2, .peer = {"worker", 1}, .bytes = 64}, 5); }
  const json events = scene.take("server 0");
  CHECK(events[1]["name"] == "push of worker 1, unit 2");
  CHECK(events[1]["args"] == json({{"step", 5}, {"unit", "unit 2"}, {"peer", "worker 1"}, {"bytes", 64}}));
}

TEST_CASE("transfers overlap with activities, and land once") {
  Scene scene;
  Events::Flight first(scene.events, {"all_reduce", {}, 8});
  {
    const Events::Span backward(scene.events, {.name = "backward"});
    scene.pass(microseconds(3));
    Events::Flight second(scene.events, {"all_reduce", {}, 8});
    Events::Flight moved = std::move(first);
    scene.pass(microseconds(1));
    moved.land();
    scene.pass(microseconds(1));
    moved.land();
  }
  first = Events::Flight();
  const json events = scene.take();
  REQUIRE(events.size() == 6);
  const auto is = [&](std::size_t i, const char* phase, double at) {
    CHECK(events[i]["name"] == "all_reduce 8 bytes");
    CHECK(events[i]["ph"] == phase);
    CHECK(events[i]["ts"] == at);
    CHECK(events[i]["cat"] == "exchange");
  };
  is(1, "b", 1000.0);
  is(2, "e", 1004.0);
  is(3, "b", 1003.0);
  is(4, "e", 1005.0);
  CHECK(events[1]["id2"] == events[2]["id2"]);
  CHECK(events[1]["id2"] != events[3]["id2"]);
  CHECK(events[5]["name"] == "backward");
}

TEST_CASE("an arrow leads from the frame that leaves to the frame that arrives") {
  Scene worker;
  Scene server;
  const FrameMoved frame{.unit = 0,
                         .operation = "push_pull",
                         .peer = {"server", 1},
                         .number = 4,
                         .range = {256, 512},
                         .bytes = 1024,
                         .version = 3};
  worker.events.instant(frame);
  FrameMoved arrived = frame;
  arrived.arrived = true;
  arrived.peer = {"worker", 0};
  server.pass(microseconds(20));
  server.events.instant(arrived);
  const json sent = worker.take("worker 0");
  const json received = server.take("server 1");
  REQUIRE(sent.size() == 3);
  REQUIRE(received.size() == 3);
  CHECK(sent[1]["name"] == "push_pull leaves");
  CHECK(sent[1]["args"]["peer"] == "server 1");
  CHECK(sent[1]["args"]["begin"] == 256);
  CHECK(sent[1]["args"]["version"] == 3);
  CHECK(received[1]["name"] == "push_pull arrives");
  CHECK(sent[2]["ph"] == "s");
  CHECK(received[2]["ph"] == "f");
  CHECK(sent[2]["id"] == received[2]["id"]);
  CHECK(sent[2]["name"] == received[2]["name"]);
  CHECK(received[2]["ts"] == 1020.0);
}

TEST_CASE("units that come and go are counted") {
  Scene scene;
  using enum Presence::Values;
  scene.events.instant(Presence{parameters, 0, true, 100});
  scene.events.instant(Presence{gradients, 0, true, 40});
  scene.events.instant(Presence{parameters, 0, false, 100});
  const json events = scene.take();
  REQUIRE(events.size() == 4);
  const auto held = [&](std::size_t i) {
    return std::pair(events[i]["args"]["parameters, bytes"].get<int>(),
                     events[i]["args"]["gradients, bytes"].get<int>());
  };
  CHECK(events[1]["ph"] == "C");
  CHECK(held(1) == std::pair(100, 0));
  CHECK(held(2) == std::pair(100, 40));
  CHECK(held(3) == std::pair(0, 40));
}

TEST_CASE("a device has a track of its own") {
  Scene scene;
  { const Events::Span step(scene.events, {.name = "step"}); }
  scene.events.detail(DeviceWork{"forward 3"}, scene.events.step(), scene.clock.at - microseconds(20), microseconds(5));
  const json events = scene.take();
  REQUIRE(events.size() == 4);
  CHECK(events[1]["tid"] == 0);
  CHECK(events[2]["name"] == "thread_name");
  CHECK(events[2]["tid"] == 1);
  CHECK(events[3]["name"] == "forward 3");
  CHECK(events[3]["tid"] == 1);
  CHECK(events[3]["ts"] == 980.0);
  CHECK(events[3]["dur"] == 5.0);
}

TEST_CASE("a listener to reports hears no details, and a stream without listeners nothing") {
  class Reports final : public ReportListener {
   public:
    void on_step(const StepReport& report) override { steps.push_back(report.step); }
    void on_evaluation(const Evaluation& evaluation) override { evaluations.push_back(evaluation.step); }
    std::vector<std::uint64_t> steps;
    std::vector<std::uint64_t> evaluations;
  };
  const test::HandClock clock{Moment{microseconds(1000)}};
  Events events(clock);
  { const Events::Span span(events, {.name = "step"}); }
  Reports reports;
  events.listen(reports, Events::Wanted::reports);
  { const Events::Span span(events, {.name = "step"}); }
  { const Events::Flight flight(events, {"push", {0, 1}, 8}); }
  events.instant(DeviceWork{"forward 3"});
  CHECK_FALSE(events.detailed());
  events.report(StepReport{.step = 3});
  events.report(Evaluation{.step = 4});
  CHECK(reports.steps == std::vector<std::uint64_t>{3});
  CHECK(reports.evaluations == std::vector<std::uint64_t>{4});
  EventRecorder recorder;
  events.listen(recorder, Events::Wanted::details);
  CHECK(events.detailed());
  CHECK(recorder.take({}).empty());
}

TEST_CASE("parts of a recording are one trace; dropped events are told") {
  Scene scene;
  scene.events.name(UnitNames{{"layers.0"}});
  { const Events::Flight flight(scene.events, {"push", {0, 1}, 8}); }
  REQUIRE(scene.take().size() == 3);
  { const Events::Flight flight(scene.events, {"push", {0, 1}, 8}); }
  const json events = scene.take();
  REQUIRE(events.size() == 5);
  CHECK(events[1]["name"] == "push layers.0");
  CHECK(events[3]["name"] == "push layers.0");
  CHECK(events[1]["id2"] == events[2]["id2"]);
  CHECK(events[1]["id2"] != events[3]["id2"]);
  for (std::size_t i = 0; i < 1'500'000; ++i)
    scene.recorder.on_event({scene.clock.at, {}, 0, GradientReady{{i, i + 1}}});
  const std::string last = scene.take().back()["name"];
  CHECK(last.ends_with(" events were dropped"));
}

TEST_CASE("a process that was started again begins without units, and a later epoch numbers frames anew") {
  Scene first;
  Scene second;
  second.pass(microseconds(500));
  first.events.instant(Presence{Presence::Values::parameters, 0, true, 100});
  first.take();
  second.recorded = first.recorded;
  second.events.instant(Presence{Presence::Values::parameters, 0, true, 40});
  second.events.instant(FrameMoved{.operation = "push", .peer = {"server", 0}, .number = 3});
  const json events = second.take("worker 0", Nanoseconds{0}, 2);
  REQUIRE(events.size() == 6);
  CHECK(events[1]["args"]["parameters, bytes"] == 100);
  CHECK(events[2]["args"]["name"] == "worker 0");
  CHECK(events[3]["args"]["parameters, bytes"] == 40);
  CHECK(events[5]["id"] == "worker 0 to server 0, 2.3");
}

TEST_CASE("a run without recorded events has no trace") {
  const test::TemporaryFolder folder;
  CHECK_THROWS_WITH(view::write_trace(folder.path()), Catch::Contains("holds no recorded events"));
  CHECK_FALSE(std::filesystem::exists(folder.file("trace.json")));
}

TEST_CASE("names are JSON whatever is in them") {
  Scene scene;
  scene.events.name(UnitNames{{"a\"b\\c \n\x01"}});
  { const Events::Span span(scene.events, {.name = "acquire", .unit = 0}); }
  const json events = scene.take("wor\"ker");
  CHECK(events[0]["args"]["name"] == "wor\"ker");
  CHECK(events[1]["name"] == "acquire a\"b\\c \n\x01");
}
