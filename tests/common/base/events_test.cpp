// The stream of events gives each listener every event that it wants, in order.
#include <array>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include <psring/common/base/events/events.h>
#include <psring/tests/support/hand_clock.h>

using namespace psring;
using test::HandClock;

namespace {

/// Notes the events' kinds in the order of their arrival.
struct Notes final : EventListener {
  void on_event(const Event& event) override {
    if (std::holds_alternative<StepReport>(event.what)) names.emplace_back("step");
    if (const auto* work = std::get_if<DeviceWork>(&event.what)) names.push_back(work->name);
  }
  std::vector<std::string> names;
};

/// Causes a detail while it handles a report, as a listener does that waits for a device.
struct Nested final : ReportListener {
  explicit Nested(Events& stream) : events(stream) {}
  void on_step(const StepReport& /*report*/) override { events.instant(DeviceWork{"kernel"}); }
  void on_evaluation(const Evaluation& /*evaluation*/) override {}
  Events& events;
};

}  // namespace

TEST_CASE("a listener may cause events while it handles one", "[unit]") {
  const HandClock clock{Moment{}};
  Events events{clock};
  Nested nested{events};
  Notes notes;
  events.listen(nested, Events::Wanted::reports);
  events.listen(notes, Events::Wanted::details);
  events.report(StepReport{});
  events.report(StepReport{});
  // The listeners are called in the order in which they were attached, so the caused event comes first here.
  CHECK(notes.names == std::vector<std::string>{"kernel", "step", "kernel", "step"});
}

namespace {

/// Notes what begins and what ends.
struct BeginsAndEnds final : EventListener {
  void on_event(const Event& event) override { note("", event); }
  void on_begin(const Event& begun) override { note("begin ", begun); }
  void note(const std::string& what, const Event& event) {
    constexpr std::array kNames = {"names",    "activity", "transfer", "work",      "frame",
                                   "presence", "ready",    "step",     "evaluation"};
    notes.push_back(what + kNames.at(event.what.index()));
  }
  std::vector<std::string> notes;
};

std::vector<std::string> noted(Events::Wanted wanted) {
  const HandClock clock{Moment{}};
  Events events{clock};
  BeginsAndEnds listener;
  events.listen(listener, wanted);
  {
    const Events::Span span(events, {.name = "forward"});
    const Events::Flight flight(events, {"push", {0, 1}, 4});
    events.instant(FrameMoved{});
  }
  events.report(StepReport{});
  return listener.notes;
}

}  // namespace

TEST_CASE("a listener gets what it wants, and no more", "[unit]") {
  using Names = std::vector<std::string>;
  CHECK(noted(Events::Wanted::reports) == Names{"step"});
  CHECK(noted(Events::Wanted::details) == Names{"frame", "transfer", "activity", "step"});
  CHECK(noted(Events::Wanted::begins) ==
        Names{"begin activity", "begin transfer", "frame", "transfer", "activity", "step"});
}

TEST_CASE("a wait in which nothing happens is told only to listeners that want begins", "[unit]") {
  const auto names = [](Events::Wanted wanted) {
    struct Listener final : EventListener {
      void on_event(const Event& event) override { names.emplace_back(std::get<Activity>(event.what).name); }
      std::vector<std::string> names;
    } listener;
    const HandClock clock{Moment{}};
    Events events{clock};
    events.listen(listener, wanted);
    Nanoseconds waited{0};
    {
      const Events::Span step(events, {.name = "step"});
      { const Events::Span idle(events, {.name = "idle", .waits = Activity::Waits::perhaps}); }
      const Events::Span acquire(events, {.name = "acquire", .waits = Activity::Waits::perhaps});
      const Events::Span copy(events, {.name = "copy"});
      const Events::Wait wait(events, {.name = "wait"}, waited);
    }
    { const Events::Span load(events, {.name = "load"}); }
    return listener.names;
  };
  using Names = std::vector<std::string>;
  CHECK(names(Events::Wanted::details) == Names{"wait", "copy", "acquire", "step", "load"});
  CHECK(names(Events::Wanted::begins) == Names{"idle", "wait", "copy", "acquire", "step", "load"});
}

TEST_CASE("another thread sees what a thread does at present", "[unit]") {
  HandClock clock{Moment{}};
  Events events{clock};
  SharedCell<Present> cell;
  events.show_present(cell);
  CHECK(events.active());
  CHECK_FALSE(events.detailed());
  const auto pass = [&](int time) { clock.at += Nanoseconds{time}; };
  Nanoseconds waited{0};
  CHECK(cell.read().outermost_since == kNever);
  events.begin_step(7);
  pass(5);
  {
    const Events::Span step(events, {.name = "step"});
    CHECK(cell.read().step == 7);
    CHECK(cell.read().outermost_since == Moment{Nanoseconds{5}});
    CHECK(cell.read().waiting.name.empty());
    pass(1);
    const Events::Span acquire(events, {.name = "acquire", .waits = Activity::Waits::perhaps});
    CHECK(cell.read().waiting.name == "acquire");
    {
      pass(1);
      const Events::Span copy(events, {.name = "copy"});
      const Events::Wait wait(events, {.name = "push", .peer = {"server", 1}}, waited);
      CHECK(cell.read().waiting.name == "push");
      CHECK(cell.read().waiting.peer.text() == "server 1");
      CHECK(cell.read().waiting.since == Moment{Nanoseconds{7}});
      pass(2);
    }
    CHECK(cell.read().waiting.name == "acquire");
    CHECK(cell.read().waiting.since == Moment{Nanoseconds{6}});
    CHECK(cell.read().busy == Nanoseconds{0});
  }
  CHECK(waited == Nanoseconds{2});
  CHECK(cell.read().outermost_since == kNever);
  CHECK(cell.read().waiting.name.empty());
  CHECK(cell.read().busy == Nanoseconds{4});
  { const Events::Span load(events, {.name = "load"}, 8, Moment{Nanoseconds{3}}); }
  CHECK(cell.read().step == 8);
  CHECK(cell.read().busy == Nanoseconds{10});
}

TEST_CASE("a wait for what is complete is told only to listeners that want begins", "[unit]") {
  struct Listener final : EventListener {
    void on_event(const Event& event) override { names.emplace_back(std::get<Activity>(event.what).name); }
    std::vector<std::string> names;
  };
  const auto names = [](std::vector<Events::Wanted> all) {
    std::vector<Listener> listeners(all.size());
    const HandClock clock{Moment{}};
    Events events{clock};
    for (std::size_t i = 0; i < all.size(); ++i) events.listen(listeners[i], all[i]);
    {
      const Events::Span step(events, {.name = "step"});
      const Events::Span acquire(events, {.name = "acquire", .waits = Activity::Waits::perhaps});
      events.need_not_wait({.name = "wait"});
    }
    std::vector<std::vector<std::string>> found;
    for (const Listener& listener : listeners) found.push_back(listener.names);
    return found;
  };
  using Wanted = Events::Wanted;
  using Names = std::vector<std::vector<std::string>>;
  CHECK(names({Wanted::details}) == Names{{"step"}});
  CHECK(names({Wanted::begins}) == Names{{"wait", "acquire", "step"}});
}

TEST_CASE("a wait's time is added up, and is its event's", "[unit]") {
  struct Listener final : EventListener {
    void on_event(const Event& event) override { event_ = event; }
    Event event_;
  } listener;
  HandClock clock{Moment{}};
  Events events{clock};
  Nanoseconds waited{5};
  const auto wait = [&] {
    const Events::Wait waiting(events, {.name = "wait", .peer = {"worker", 2}}, waited);
    clock.at += Nanoseconds{30};
  };
  wait();
  CHECK(waited == Nanoseconds{35});
  events.listen(listener, Events::Wanted::details);
  wait();
  CHECK(waited == Nanoseconds{65});
  CHECK(listener.event_.start == Moment{Nanoseconds{30}});
  CHECK(listener.event_.duration == Nanoseconds{30});
  CHECK(std::get<Activity>(listener.event_.what).peer == PeerName{"worker", 2});
}
