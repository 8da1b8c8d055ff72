#include <algorithm>
#include <map>
#include <set>

#include <catch2/catch.hpp>

#include <psring/common/base/text/error.h>
#include <psring/tests/support/pipeline_simulation.h>
#include <psring/worker/model/parallel/schedule.h>

namespace psring::worker {
namespace {

using Kind = StageAction::Kind;
constexpr auto kGpipe = PipelineSchedule::gpipe;
constexpr auto k1F1B = PipelineSchedule::one_forward_one_backward;

std::vector<StagePlan> plans_of(PipelineSchedule schedule, std::size_t stages, std::size_t micros) {
  std::vector<StagePlan> plans;
  for (std::size_t stage = 0; stage < stages; ++stage) plans.push_back(plan_stage(schedule, stage, stages, micros));
  return plans;
}

StageTimes equal_times(std::size_t stages, double forward, double backward, double message = 0) {
  return {std::vector<double>(stages, forward), std::vector<double>(stages, backward), message};
}

/// The micro-batches of one kind of action, in the order of the plan.
std::vector<std::size_t> micros_of(const StagePlan& plan, Kind kind) {
  std::vector<std::size_t> micros;
  for (const StageAction& action : plan)
    if (action.kind == kind) micros.push_back(action.micro);
  return micros;
}

}  // namespace

TEST_CASE("a plan has every action of every micro-batch once, in order, with what it needs before it") {
  for (const auto schedule : {kGpipe, k1F1B})
    for (const std::size_t stages : {1, 2, 3, 5, 16})
      for (const std::size_t micros : {1, 2, 3, 7, 64})
        for (std::size_t stage = 0; stage < stages; ++stage) {
          CAPTURE(stages, micros, stage);
          const StagePlan plan = plan_stage(schedule, stage, stages, micros);
          std::vector<std::size_t> all(micros);
          for (std::size_t m = 0; m < micros; ++m) all[m] = m;
          CHECK(micros_of(plan, Kind::forward) == all);
          CHECK(micros_of(plan, Kind::backward) == all);
          const std::vector<std::size_t> none;
          CHECK(micros_of(plan, Kind::receive_input) == (stage > 0 ? all : none));
          CHECK(micros_of(plan, Kind::send_gradient) == (stage > 0 ? all : none));
          CHECK(micros_of(plan, Kind::send_output) == (stage + 1 < stages ? all : none));
          CHECK(micros_of(plan, Kind::receive_gradient) == (stage + 1 < stages ? all : none));
          std::map<std::size_t, std::set<Kind>> before;
          for (const auto& [kind, micro] : plan) {
            std::set<Kind>& done = before[micro];
            if (kind == Kind::forward && stage > 0) CHECK(done.contains(Kind::receive_input));
            if (kind == Kind::send_output) CHECK(done.contains(Kind::forward));
            if (kind == Kind::backward) CHECK(done.contains(Kind::forward));
            if (kind == Kind::backward && stage + 1 < stages) CHECK(done.contains(Kind::receive_gradient));
            if (kind == Kind::send_gradient) CHECK(done.contains(Kind::backward));
            done.insert(kind);
          }
        }
}

TEST_CASE("one stage computes one micro-batch after the other") {
  for (const auto schedule : {kGpipe, k1F1B})
    CHECK(plan_stage(schedule, 0, 1, 2) ==
          StagePlan{{Kind::forward, 0}, {Kind::backward, 0}, {Kind::forward, 1}, {Kind::backward, 1}});
}

TEST_CASE("the plans of all stages end, with sends that wait and with sends that do not") {
  for (const auto schedule : {kGpipe, k1F1B})
    for (const std::size_t stages : {2, 3, 4, 16})
      for (const std::size_t micros : {1, 2, 5, 64}) {
        CAPTURE(stages, micros);
        const auto plans = plans_of(schedule, stages, micros);
        for (const Sends sends : {Sends::buffered, Sends::exchanged})
          CHECK(simulate_pipeline(plans, equal_times(stages, 1, 2, 0.25), sends).complete);
      }
}

TEST_CASE("the simulation finds that 1f1b blocks itself if sends wait and form no exchanges") {
  CHECK(simulate_pipeline(plans_of(kGpipe, 4, 8), equal_times(4, 1, 1), Sends::blocking).complete);
  CHECK_FALSE(simulate_pipeline(plans_of(k1F1B, 4, 8), equal_times(4, 1, 1), Sends::blocking).complete);
}

TEST_CASE("the simulation finds plans that wait for each other") {
  std::vector<StagePlan> plans = plans_of(kGpipe, 2, 2);
  std::swap(plans[1][0], plans[1][3]);  // stage 1 asks for its second input first
  plans[0] = {{Kind::receive_gradient, 0}, {Kind::forward, 0}, {Kind::send_output, 0}};
  CHECK_FALSE(simulate_pipeline(plans, equal_times(2, 1, 1), Sends::buffered).complete);
}

TEST_CASE("gpipe keeps the activations of all micro-batches, 1f1b those of at most as many as there are stages") {
  const std::size_t stages = 16;
  const std::size_t micros = 64;
  for (std::size_t stage = 0; stage < stages; ++stage) {
    CHECK(most_in_flight(plan_stage(kGpipe, stage, stages, micros)) == micros);
    CHECK(most_in_flight(plan_stage(k1F1B, stage, stages, micros)) == stages - stage);
    CHECK(most_in_flight(plan_stage(k1F1B, stage, stages, 3)) == std::min<std::size_t>(3, stages - stage));
  }
  CHECK(most_in_flight(plan_stage(kGpipe, 0, 1, micros)) == 1);
}

TEST_CASE("the simulated bubble is the predicted one, in both schedules") {
  for (const auto schedule : {kGpipe, k1F1B})
    for (const std::size_t stages : {1, 2, 4, 16})
      for (const std::size_t micros : {1, 2, 4, 8, 64}) {
        CAPTURE(stages, micros);
        const auto run =
            simulate_pipeline(plans_of(schedule, stages, micros), equal_times(stages, 1, 2), Sends::buffered);
        CHECK(run.bubble() == Approx(predicted_bubble(stages, micros)));
        CHECK(run.seconds == Approx(3.0 * static_cast<double>(micros + stages - 1)));
      }
}

TEST_CASE("a slow message makes the bubble longer, and a slow stage bounds the step") {
  const auto plans = plans_of(k1F1B, 4, 8);
  const double fast = simulate_pipeline(plans, equal_times(4, 1, 1), Sends::buffered).seconds;
  CHECK(simulate_pipeline(plans, equal_times(4, 1, 1, 0.5), Sends::buffered).seconds > fast);
  StageTimes slow = equal_times(4, 1, 1);
  slow.forward[2] = slow.backward[2] = 3;
  CHECK(simulate_pipeline(plans, slow, Sends::buffered).seconds >= 8 * 6);
}

TEST_CASE("a schedule's name") {
  CHECK(parse_pipeline_schedule("gpipe") == kGpipe);
  CHECK(parse_pipeline_schedule("1f1b") == k1F1B);
  CHECK_THROWS_AS(parse_pipeline_schedule("zero-bubble"), Error);
}

TEST_CASE("a plan in one line for each stage") {
  CHECK(describe(plans_of(k1F1B, 2, 3)) == "stage 0: F0 F1 B0 F2 B1 B2\nstage 1: F0 B0 F1 B1 F2 B2\n");
  CHECK(describe(plans_of(kGpipe, 2, 2)) == "stage 0: F0 F1 B0 B1\nstage 1: F0 F1 B0 B1\n");
}

}  // namespace psring::worker
