#include <cmath>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include <psring/common/base/text/error.h>
#include <psring/optim/optimizers.h>
#include <psring/tests/support/model_runner.h>
#include <psring/tests/support/temporary_folder.h>
#include <psring/worker/inference.h>
#include <psring/worker/model/conv_net.h>
#include <psring/worker/model/gpt.h>
#include <psring/worker/model/mlp.h>
#include <psring/worker/training.h>

using namespace psring;
using namespace psring::worker;
using Catch::Contains;

namespace {

struct Observer final : ReportListener {
  void on_step(const StepReport& report) override { steps.push_back(report); }
  void on_evaluation(const Evaluation& evaluation) override { last = evaluation; }
  std::vector<StepReport> steps;
  Evaluation last;
};

Registries builtins() {
  Registries registries;
  register_builtins(registries);
  return registries;
}

/// Trains in this process, saves to `file`, and returns what was reported.
Observer train(const std::string& model, const std::string& file, const Registries& registries = builtins(),
               const std::string& data = "synthetic:samples=200", std::uint64_t steps = 30) {
  JobOptions job;
  job.strategy = "single";
  job.model = model;
  job.data = data;
  job.workers = 1;
  job.global_batch = 20;
  job.steps = steps;
  optim::OptimizerRegistry optimizers;
  optim::register_builtin_optimizers(optimizers);
  const TrainSetup setup(job, registries, optimizers);
  MemoryLedger memory;
  const SystemClock clock;
  Events events(clock);
  Observer observer;
  events.listen(observer, Events::Wanted::reports);
  Training training(setup, {}, {.memory = memory, .clock = clock, .events = events});
  training.run();
  training.save(file);
  return observer;
}

}  // namespace

TEST_CASE("a trained model gives the outputs that its own evaluation has") {
  const test::TemporaryFolder folder;
  const Registries registries = builtins();
  for (const std::string text : {"mlp:12-9-d0.3-4", "bn-mlp:12-9-4", "conv:3x2x2-4c3-r3-4"}) {
    INFO(text);
    const Observer trained = train(text, folder.file("m"));
    Inference model(std::move(*registries.models.make(Spec::parse("--model", text))), folder.file("m"), {.batch = 7});
    CHECK(model.output_size() == 4);
    const DataSplit data = make_dataset(registries.datasets, Spec::parse("--data", "synthetic:samples=200"),
                                        {.input_cols = 12, .classes = 4, .seed = JobOptions().seed});
    std::vector<float> inputs(data.test->size() * 12);
    std::vector<std::int32_t> targets(data.test->size());
    for (std::size_t i = 0; i < targets.size(); ++i)
      data.test->read(i, {std::span(inputs).subspan(i * 12, 12), std::span(targets).subspan(i, 1)});
    const std::vector<float> y = model.run(inputs);
    REQUIRE(y.size() == targets.size() * 4);
    const LossResult loss = model.model().loss->evaluate({y.data(), targets.size(), 4}, targets, 0, {});
    CHECK(loss.correct == trained.last.correct);
    CHECK(loss.loss_sum == Approx(trained.last.loss_sum).epsilon(1e-6));
  }
}

TEST_CASE("inference refuses what does not fit") {
  const test::TemporaryFolder folder;
  train("mlp:12-9-4", folder.file("m"));
  const auto make = [](const char* text) { return make_mlp(Spec::parse("--model", text)); };
  CHECK_THROWS_WITH(Inference(make("mlp:12-8-4"), folder.file("m")), Contains("layers.0.weight"));
  CHECK_THROWS_WITH(Inference(make("mlp:12-9-4"), folder.file("none")), Contains("none"));
  CHECK_THROWS_WITH(Inference(make("mlp:12-9-4"), folder.file("m"), {.batch = 0}), Contains("batch of 0"));
  Inference model(make("mlp:12-9-4"), folder.file("m"));
  CHECK_THROWS_WITH(model.run(std::vector<float>(13)), Contains("13 values"));
  CHECK(model.run({}).empty());
}

TEST_CASE("text models give scores of every position") {
  const test::TemporaryFolder folder;
  const std::string text = "gpt:layers=1,dim=8,heads=2,context=4,vocab=6";
  train(text, folder.file("m"), builtins(), "synthetic:samples=60", 3);
  Inference model(make_gpt(Spec::parse("--model", text)), folder.file("m"));
  CHECK(model.output_size() == 24);
  const std::vector<float> tokens{1, 2, 3, 4, 1, 2, 0, 0};
  const std::vector<float> y = model.run(tokens);
  REQUIRE(y.size() == 48);
  for (std::size_t i = 0; i < 12; ++i) CHECK(y[i] == y[24 + i]);  // of the first two tokens, which are the same
}

TEST_CASE("a program's callbacks and metrics are in the reports") {
  const test::TemporaryFolder folder;
  Registries registries = builtins();
  registries.models.add("own", "", [](const Spec& spec) {
    auto model = std::make_unique<Model>(make_mse_mlp(Spec::parse("--model", "mse-mlp:5-16-2")));
    model->name = spec.text();
    model->metrics.push_back({"mae", [](ConstMatrix y, const Targets& targets) {
                                double sum = 0;
                                for (std::size_t i = 0; i < y.size(); ++i)
                                  sum += std::abs(static_cast<double>(y.data[i] - targets.values.data[i])) / 2;
                                return sum;
                              }});
    return model;
  });
  std::vector<std::uint64_t> seen;
  registries.step_callbacks.push_back([&](StepContext& step) {
    seen.push_back(step.step());
    step.record("double_loss", 2 * step.loss());
  });
  const Observer observer = train("own", folder.file("m"), registries, "synthetic:samples=200", 400);
  REQUIRE(seen.size() == 400);
  CHECK(seen.back() == 399);
  REQUIRE(observer.steps[7].own.size() == 1);
  CHECK(observer.steps[7].own[0].name == "double_loss");
  CHECK(observer.steps[7].own[0].value == 2 * observer.steps[7].loss);
  REQUIRE(observer.last.own.size() == 1);
  const double rows = static_cast<double>(observer.last.rows);
  const double mae = observer.last.own[0].value / rows;
  CHECK(mae > 0);
  CHECK(mae <= std::sqrt(observer.last.loss_sum / rows) + 1e-6);  // the mean is at most the root mean square
  CHECK(observer.steps.back().loss < 0.5 * observer.steps.front().loss);

  registries.step_callbacks.push_back([](StepContext&) { throw std::runtime_error("my figure"); });
  CHECK_THROWS_WITH(train("own", folder.file("m"), registries),
                    Contains("the callback of step 0") && Contains("my figure"));
}
