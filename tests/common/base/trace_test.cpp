#include <utility>

#include <catch2/catch.hpp>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <psring/common/base/trace.h>
#include <psring/tests/support/hand_clock.h>

using namespace psring;
using nlohmann::json;

TEST_CASE("spans become complete events on the job's clock, inner ones first") {
  test::HandClock clock{Moment{std::chrono::microseconds(1000)}};
  Trace trace(clock, true);
  {
    const Trace::Span step(trace, "step");
    clock.at += std::chrono::nanoseconds(1500);
    {
      const Trace::Span forward(trace, "forward", "layers.0");
      clock.at += std::chrono::microseconds(4);
    }
    clock.at += std::chrono::microseconds(1);
  }
  const json events = json::parse(fmt::format("[{}]", trace.take_json("worker 3", 4, std::chrono::microseconds(50))));
  REQUIRE(events.size() == 3);
  CHECK(events[0]["ph"] == "M");
  CHECK(events[0]["args"]["name"] == "worker 3");
  CHECK(events[1]["name"] == "forward layers.0");
  CHECK(events[1]["ts"] == 1051.5);
  CHECK(events[1]["dur"] == 4.0);
  CHECK(events[2]["name"] == "step");
  CHECK(events[2]["ts"] == 1050.0);
  CHECK(events[2]["dur"] == 6.5);
  for (const json& event : events) CHECK(event["pid"] == 4);
  CHECK(trace.take_json("worker 3", 4, Nanoseconds{0}).empty());  // forgotten
}

TEST_CASE("what flies overlaps with what the thread does, and lands once") {
  test::HandClock clock{Moment{std::chrono::microseconds(1000)}};
  Trace trace(clock, true);
  Trace::Flight first(trace, "all_reduce 8 bytes");
  {
    const Trace::Span backward(trace, "backward");
    clock.at += std::chrono::microseconds(3);
    Trace::Flight second(trace, "all_reduce 8 bytes");
    Trace::Flight moved = std::move(first);
    clock.at += std::chrono::microseconds(1);
    moved.land();
    clock.at += std::chrono::microseconds(1);
    moved.land();
  }
  first = Trace::Flight();
  const json events = json::parse(fmt::format("[{}]", trace.take_json("worker 0", 1, Nanoseconds{0})));
  REQUIRE(events.size() == 6);
  const auto is = [&](std::size_t i, const char* phase, double at) {
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

TEST_CASE("what a device did has a track of its own") {
  test::HandClock clock{Moment{std::chrono::microseconds(1000)}};
  Trace trace(clock, true);
  { const Trace::Span step(trace, "step"); }
  trace.add_device("forward 3", clock.at - std::chrono::microseconds(20), std::chrono::microseconds(5));
  const json events = json::parse(fmt::format("[{}]", trace.take_json("worker 0", 1, Nanoseconds{0})));
  REQUIRE(events.size() == 4);
  CHECK(events[1]["name"] == "thread_name");
  CHECK(events[1]["tid"] == 1);
  CHECK(events[2]["tid"] == 0);
  CHECK(events[3]["name"] == "forward 3");
  CHECK(events[3]["tid"] == 1);
  CHECK(events[3]["ts"] == 980.0);
  CHECK(events[3]["dur"] == 5.0);
}

TEST_CASE("what is switched off records nothing") {
  test::HandClock clock{Moment{std::chrono::microseconds(1000)}};
  Trace trace(clock, false);
  { const Trace::Span span(trace, "step"); }
  { const Trace::Flight flight(trace, "push"); }
  trace.add_device("forward 3", clock.at, std::chrono::microseconds(5));
  CHECK_FALSE(trace.on());
  CHECK(trace.take_json("worker 0", 1, Nanoseconds{0}).empty());
}

TEST_CASE("names are JSON whatever is in them") {
  test::HandClock clock{Moment{std::chrono::microseconds(1000)}};
  Trace trace(clock, true);
  { const Trace::Span span(trace, "a\"b\\c", "\n\x01"); }
  const json events = json::parse(fmt::format("[{}]", trace.take_json("wor\"ker", 1, Nanoseconds{0})));
  CHECK(events[0]["args"]["name"] == "wor\"ker");
  CHECK(events[1]["name"] == "a\"b\\c \n\x01");
}
