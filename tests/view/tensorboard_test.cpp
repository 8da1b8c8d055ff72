#include <map>
#include <string>
#include <vector>

#include <catch2/catch.hpp>
#include <fmt/format.h>

#include <psring/view/tensorboard/event_records.h>
#include <psring/view/tensorboard/step_scalars.h>

using namespace psring::view;

namespace {

std::string hex(const std::string& bytes) {
  std::string text;
  for (const char byte : bytes) text += fmt::format("{:02x}", static_cast<unsigned char>(byte));
  return text;
}

std::string step_line(int step, int worker, double loss, const std::string& more = "") {
  return fmt::format(
      R"({{"step":{},"epoch":0,"worker":{},"time_s":{},"loss":{},"lr":0.5,"samples":4,"step_s":0.5,"compute_s":0.25,)"
      R"("comm_s":0.25,"exposed_comm_s":0.125,"bytes_sent":100,"bytes_received":200,"staleness":{}{}}})"
      "\n",
      step, worker, 0.5 * (step + 1), loss, worker, more);
}

std::string evaluation_line(int step, int worker, double loss, int correct) {
  return fmt::format(
      R"({{"step":{},"worker":{},"time_s":{},"test_loss":{},"test_rows":10,"test_accuracy":0,"test_correct":{}}})"
      "\n",
      step, worker, 0.5 * step, loss, correct);
}

/// "3: train/loss 2" for each step with its loss, "restart 3" for each restart.
std::vector<std::string> losses(const std::vector<StepScalars>& steps) {
  std::vector<std::string> texts;
  for (const StepScalars& step : steps)
    texts.push_back(step.scalars.empty()
                        ? fmt::format("restart {}", step.step)
                        : fmt::format("{}: {} {}", step.step, step.scalars[0].tag, step.scalars[0].value));
  return texts;
}

std::map<std::string, double> values(const StepScalars& step) {
  std::map<std::string, double> found;
  for (const Scalar& scalar : step.scalars) found[scalar.tag] = scalar.value;
  return found;
}

using Texts = std::vector<std::string>;
constexpr double kNow = 1000;

}  // namespace

TEST_CASE("records have the bytes of TensorFlow's format") {
  CHECK(hex(version_record(0.5)) == "1800000000000000a37f4b2209000000000000e03f1a0d627261696e2e4576656e743a3266f7e1a8");
  CHECK(hex(start_record(0.5, 300)) == "100000000000000095fbfe1809000000000000e03f10ac023a02080141b5e7c7");
  CHECK(hex(scalars_record(0.5, 7, std::vector<Scalar>{{"a/b", 1.5}, {"c", 0}})) ==
        "2300000000000000b09f774309000000000000e03f10072a160a0a0a03612f62150000c03f0a080a01631500000000e1"
        "f5349a");
}

TEST_CASE("a step is complete when all workers have recorded it or a later one") {
  StepScalarsBuilder steps(2, false);
  steps.add_metrics(step_line(0, 0, 1) + step_line(1, 0, 3), kNow);
  CHECK(steps.take_complete().empty());
  steps.add_metrics(step_line(0, 1, 5), kNow + 1);
  const auto complete = steps.take_complete();
  REQUIRE(losses(complete) == Texts{"0: train/loss 3"});
  CHECK(values(complete[0]) == std::map<std::string, double>{{"train/loss", 3},
                                                             {"train/lr", 0.5},
                                                             {"train/epoch", 0},
                                                             {"time/step_s", 0.5},
                                                             {"time/compute_s", 0.25},
                                                             {"time/comm_s", 0.25},
                                                             {"time/exposed_s", 0.125},
                                                             {"bytes/sent", 200},
                                                             {"bytes/received", 400},
                                                             {"throughput/samples_per_s", 16}});
  CHECK(complete[0].wall_time == kNow + 1);
  CHECK(losses(steps.take_rest()) == Texts{"1: train/loss 3"});
  CHECK(steps.take_rest().empty());
}

TEST_CASE("an evaluation comes before the step that begins with its parameters") {
  StepScalarsBuilder steps(2, false);
  for (int worker = 0; worker < 2; ++worker)
    steps.add_metrics(
        step_line(0, worker, 1) + evaluation_line(1, worker, 2 + 2 * worker, 4 + worker) + step_line(1, worker, 1),
        kNow);
  const auto complete = steps.take_complete();
  REQUIRE(losses(complete) == Texts{"0: train/loss 1", "1: eval/loss 3", "1: train/loss 1"});
  CHECK(values(complete[1]) == std::map<std::string, double>{{"eval/loss", 3}, {"eval/accuracy", 0.45}});
}

TEST_CASE("a model's own metrics have their names") {
  StepScalarsBuilder steps(1, false);
  steps.add_metrics(
      R"({"step":1,"worker":0,"time_s":1,"test_loss":2,"test_rows":10,"own":{"test_auc":0.75,"test_rmse":0.5}})"
      "\n",
      kNow);
  const auto rest = steps.take_rest();
  REQUIRE(rest.size() == 1);
  CHECK(values(rest[0]) == std::map<std::string, double>{{"eval/loss", 2}, {"eval/auc", 0.75}, {"eval/rmse", 0.5}});
}

TEST_CASE("steps that all workers repeat after a loss take the place of the earlier ones") {
  StepScalarsBuilder steps(2, false);
  for (int step = 0; step < 4; ++step) steps.add_metrics(step_line(step, 0, step), kNow);
  for (int step = 0; step < 3; ++step) steps.add_metrics(step_line(step, 1, step), kNow);
  CHECK(losses(steps.take_complete()) == Texts{"0: train/loss 0", "1: train/loss 1", "2: train/loss 2"});
  const std::string later = R"(,"membership":1)";
  steps.add_metrics(step_line(2, 0, 7, later) + step_line(3, 0, 8, later), kNow);
  steps.add_metrics(step_line(3, 1, 99), kNow);  // of the earlier membership, sent late
  CHECK(steps.take_complete().empty());
  steps.add_metrics(step_line(2, 1, 7, later), kNow);
  CHECK(losses(steps.take_complete()) == Texts{"restart 2", "2: train/loss 7"});
  CHECK(losses(steps.take_rest()) == Texts{"3: train/loss 8"});
}

TEST_CASE("lines that a worker lost with its process leave a step to the others") {
  StepScalarsBuilder steps(2, false);
  steps.add_metrics(step_line(0, 0, 1) + step_line(1, 0, 2), kNow);
  steps.add_metrics(step_line(0, 1, 1), kNow);
  CHECK(losses(steps.take_complete()) == Texts{"0: train/loss 1"});
  const std::string later = R"(,"membership":1)";
  for (int worker = 0; worker < 2; ++worker) steps.add_metrics(step_line(2, worker, 3, later), kNow);
  CHECK(losses(steps.take_complete()) == Texts{"1: train/loss 2", "2: train/loss 3"});
}

TEST_CASE("a job that continues with fewer workers does not wait for the others") {
  StepScalarsBuilder steps(3, false);
  steps.add_recoveries("{\"workers\":2,\"epoch\":0,\"given_up\":{\"worker\":[1]}}\n");
  for (int worker = 0; worker < 2; ++worker) steps.add_metrics(step_line(0, worker, 3, R"(,"membership":1)"), kNow);
  CHECK(losses(steps.take_complete()) == Texts{"0: train/loss 3"});
}

TEST_CASE("if each push is an update, a worker that repeats steps changes nothing, and staleness is told by worker") {
  StepScalarsBuilder steps(2, true);
  for (int worker = 0; worker < 2; ++worker) steps.add_metrics(step_line(0, worker, 1) + step_line(1, worker, 1), kNow);
  const auto complete = steps.take_complete();
  REQUIRE(complete.size() == 2);
  CHECK(values(complete[0]).at("staleness/worker_0") == 0);
  CHECK(values(complete[0]).at("staleness/worker_1") == 1);
  steps.add_metrics(step_line(1, 1, 7, R"(,"membership":1)") + step_line(2, 1, 7, R"(,"membership":1)"), kNow);
  CHECK(losses(steps.take_rest()) == Texts{"2: train/loss 7"});
}

TEST_CASE("lines that begin in the middle of a run give whole steps only") {
  StepScalarsBuilder steps(2, false);
  steps.add_metrics(step_line(5, 0, 1) + step_line(6, 0, 2) + step_line(6, 1, 4), kNow);
  steps.drop_first_steps();
  CHECK(steps.first_step(0) == 6);
  CHECK(losses(steps.take_complete()) == Texts{"6: train/loss 3"});
  CHECK(steps.first_step(9) == 9);
}

TEST_CASE("damaged lines are left out") {
  StepScalarsBuilder steps(1, false);
  steps.add_metrics("{\n[]\n{}\n{\"step_s\":1}\n\n" + step_line(0, 0, 2) + "{\"step\":1", kNow);
  CHECK(losses(steps.take_rest()) == Texts{"0: train/loss 2"});
}
