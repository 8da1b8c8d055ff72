// Models and strategies of a user's own that leave a gradient out.
#include <algorithm>
#include <utility>

#include <catch2/catch.hpp>
#include <fmt/format.h>

#include <psring/tests/support/in_process_job.h>
#include <psring/tests/support/values.h>
#include <psring/worker/model/layers/linear.h>
#include <psring/worker/model/loss.h>

using namespace psring;
using namespace psring::worker;
using test::JobRun;
using test::Links;
using test::run_job;

namespace {

/// Another strategy, whose unit 1 has no gradient from step 2 on at one of the workers.
class Forgets final : public Strategy {
 public:
  Forgets(std::unique_ptr<Strategy> inner, bool at_all) : inner_(std::move(inner)), forgets_(at_all) {}

  void start() override { inner_->start(); }
  void begin_step(Step step) override {
    step_ = step;
    inner_->begin_step(step);
  }
  void acquire(UnitId unit, Pass pass) override { inner_->acquire(unit, pass); }
  void release(UnitId unit, Pass pass) override { inner_->release(unit, pass); }
  void grad_ready(UnitId unit, Micro micro) override {
    if (!(forgets_ && unit == 1 && step_.index >= 2)) inner_->grad_ready(unit, micro);
  }
  void finish_step(Step step) override { inner_->finish_step(step); }
  void quiesce() override { inner_->quiesce(); }

 private:
  const std::unique_ptr<Strategy> inner_;
  const bool forgets_;
  Step step_;
};

/// `forgets-NAME` for each of the built-in strategies.
void add_forgetful(Registries& registries, std::size_t worker) {
  for (const char* name : {"single", "ps", "ddp", "ddp-naive"}) {
    StrategyKind kind = *registries.strategies.make(Spec::parse("--strategy", name));
    kind.make = [make = kind.make, worker](const Plan& plan, const World& world) {
      return std::make_unique<Forgets>(make(plan, world), plan.data_rank.value == worker);
    };
    registries.strategies.add(fmt::format("forgets-{}", name), "",
                              [kind](const Spec&) { return std::make_unique<StrategyKind>(kind); });
  }
}

/// y = x + b, whose backward leaves b's gradient alone where there are fewer rows than a whole batch has.
class Sometimes final : public Layer {
 public:
  Sometimes(std::size_t cols, std::size_t rows) : cols_(cols), rows_(rows) {}

  std::vector<TensorSpec> tensors() const override { return {{"sometimes.bias", {cols_}, {}}}; }
  void forward(const Forward& pass) const override {
    for (std::size_t i = 0; i < pass.x.size(); ++i) pass.y.data[i] = pass.x.data[i] + pass.parameters[0][i % cols_];
  }
  void backward(const Backward& pass) const override {
    std::copy_n(pass.dy.data, pass.dx.size(), pass.dx.data);
    if (pass.x.rows < rows_) return;
    const Gradient& bias = pass.gradients[0];
    if (bias.beta() == 0) std::fill_n(bias.data(), cols_, 0.0F);
    for (std::size_t i = 0; i < pass.dy.size(); ++i) bias.data()[i % cols_] += pass.dy.data[i];
  }

 private:
  std::size_t cols_;
  std::size_t rows_;
};

void add_sometimes(Registries& registries) {
  registries.models.add("sometimes", "", [](const Spec& spec) {
    auto model = std::make_unique<Model>(Model{.name = spec.text(), .input_cols = 20, .classes = 5});
    model->layers.push_back(std::make_unique<Linear>("first", 20, 9, Linear::Options{}));
    model->layers.push_back(std::make_unique<Sometimes>(9, spec.positive("rows", 1)));
    model->layers.push_back(std::make_unique<Linear>("last", 9, 5, Linear::Options{}));
    model->loss = make_cross_entropy();
    return model;
  });
}

/// The last batch of an epoch, step 6, is short.
JobOptions job_of(const std::string& strategy, std::size_t workers) {
  JobOptions job;
  job.strategy = strategy;
  job.model = "mlp:20-9-7-5";
  job.data = "synthetic:samples=40";
  job.workers = workers;
  job.servers = strategy.ends_with("ps") ? 2 : 0;
  job.global_batch = 6;
  job.steps = 9;
  return job;
}

}  // namespace

TEST_CASE("a gradient that does not come is an error that names the unit, at whichever worker") {
  const auto strategy = GENERATE(values<std::string>({"ps", "ddp", "ddp-naive"}));
  const auto worker = GENERATE(values<std::size_t>({0, 1}));
  const bool overlap = GENERATE(true, false);
  CAPTURE(strategy, worker, overlap);
  JobOptions job = job_of("forgets-" + strategy, 2);
  job.overlap = overlap;
  const std::string line = test::error_of(
      ErrorKind::usage, [&] { run_job(job, Links::shm, [&](Registries& r) { add_forgetful(r, worker); }); });
  CHECK_THAT(line, Catch::Contains("step 2") && Catch::Contains("'layers.1'") && Catch::Contains("grad_ready"));
}

TEST_CASE("a gradient that does not come is an error in one process, and with the optimizer on the workers") {
  const auto add = [](Registries& registries) { add_forgetful(registries, 0); };
  JobOptions job = job_of("forgets-single", 1);
  CHECK_THAT(test::error_of(ErrorKind::usage, [&] { run_job(job, Links::in_process, add); }),
             Catch::Contains("'layers.1'"));
  job.virtual_workers = 2;
  CHECK_THAT(test::error_of(ErrorKind::usage, [&] { run_job(job, Links::in_process, add); }),
             Catch::Contains("'layers.1'"));
  job = job_of("forgets-ps", 2);
  job.optimizer_on = "worker";
  CHECK_THAT(test::error_of(ErrorKind::usage, [&] { run_job(job, Links::in_process, add); }),
             Catch::Contains("'layers.1'"));
}

TEST_CASE("a gradient that a layer does not write is zero, not that of the step before") {
  const auto workers = GENERATE(values<std::size_t>({1, 2}));
  JobOptions job = job_of("single", 1);
  job.virtual_workers = workers;
  job.model = fmt::format("sometimes:rows={}", 6 / workers);
  job.steps = 6;
  const JobRun before = run_job(job, Links::in_process, add_sometimes);
  job.steps = 7;
  const JobRun reference = run_job(job, Links::in_process, add_sometimes);
  CHECK((reference.workers[0].model != before.workers[0].model));
  const auto bias = [](const JobRun& run) {  // nine floats between first.bias and last.weight
    return run.workers[0].model.substr(run.workers[0].model.size() - 4 * (9 + 45 + 5), std::size_t{4} * 9);
  };
  CHECK((bias(before) != std::string(std::size_t{4} * 9, '\0')));
  CHECK((bias(reference) == bias(before)));
  for (const char* strategy : {"ps", "ddp", "ddp-naive"}) {
    CAPTURE(strategy);
    JobOptions same = job_of(strategy, workers);
    same.model = job.model;
    same.steps = 7;
    const JobRun run = run_job(same, Links::shm, add_sometimes);
    for (const test::WorkerRun& each : run.workers) CHECK((each.model == reference.workers[0].model));
  }
}
