// The loop's promises to a strategy, seen by one that writes down what it is told.
#include <algorithm>
#include <limits>
#include <utility>

#include <catch2/catch.hpp>
#include <fmt/format.h>

#include <psring/optim/optimizers.h>
#include <psring/tests/support/temporary_folder.h>
#include <psring/tests/support/values.h>
#include <psring/worker/exchange/local_gradients.h>
#include <psring/worker/exchange/whole_parameters.h>
#include <psring/worker/strategy/abilities.h>
#include <psring/worker/training.h>

using namespace psring;
using namespace psring::worker;

namespace {

using Log = std::vector<std::string>;

/// Keeps its parameters; every hook is a line.
class Recording final : public Strategy, public Saving, public Pacing {
 public:
  Recording(const Plan& plan, const World& world, Log& log, std::uint64_t first)
      : plan_(plan), world_(world), parameters_(plan, world), gradients_(plan, world), log_(log), first_(first) {}

  void start() override {
    parameters_.start();
    log_.push_back("start");
  }
  Abilities abilities() override { return {.saving = this, .pacing = this}; }
  Step first() override { return {std::max(plan_.first_step, first_)}; }
  Step after(Step step) override { return {step.index + 1}; }
  void leave() override {}
  double staleness() override { return 0; }
  std::vector<optim::StatePart> state() override {
    std::vector<optim::StatePart> parts;
    for (UnitId unit = 0; unit < world_.units.size(); ++unit) {
      const UnitLayout& layout = plan_.layout.units[unit];
      parts.push_back({&layout, {0, layout.elements}, optim::kValues, world_.units[unit].parameters});
    }
    return parts;
  }
  void wait_saved(std::uint64_t step) override { log_.push_back(fmt::format("saved {}", step)); }
  void begin_step(Step step) override { log_.push_back(fmt::format("begin {}", step.index)); }
  void acquire(UnitId unit, Pass pass) override { log_.push_back(fmt::format("{}acquire {}", mark(pass), name(unit))); }
  void release(UnitId unit, Pass pass) override { log_.push_back(fmt::format("{}release {}", mark(pass), name(unit))); }
  void grad_ready(UnitId unit, Micro micro) override {
    const std::span<const float> gradient = world_.units[unit].gradients.as<float>();
    const bool zero = std::all_of(gradient.begin(), gradient.end(), [](float value) { return value == 0; });
    log_.push_back(fmt::format("ready {} {}{}{}{}", name(unit), micro.index, micro.last ? " last" : "",
                               plan_.job.virtual_workers == 1 ? "" : fmt::format(" of {}", micro.virtual_worker),
                               zero ? " zero" : ""));
  }
  void finish_step(Step step) override { log_.push_back(fmt::format("finish {}", step.index)); }
  void quiesce() override { log_.push_back("quiesce"); }

 private:
  static char mark(Pass pass) { return pass == Pass::forward ? '>' : '<'; }
  std::string name(UnitId unit) const { return plan_.layout.units[unit].name; }

  const Plan& plan_;
  const World& world_;
  WholeParameters parameters_;
  LocalGradients gradients_;
  Log& log_;
  const std::uint64_t first_;
};

class Observer final : public ReportListener {
 public:
  void on_step(const StepReport& report) override { steps.push_back(report); }
  void on_evaluation(const Evaluation& evaluation) override { evaluations.push_back(evaluation); }
  std::vector<StepReport> steps;
  std::vector<Evaluation> evaluations;
};

JobOptions job_of(const char* model) {
  JobOptions job;
  job.strategy = "recording";
  job.model = model;
  job.data = "synthetic:samples=40";
  job.workers = 1;
  job.global_batch = 4;
  job.steps = 1;
  return job;
}

/// Trains, as far as before step `stop`, and returns what the strategy was told.
Log train(const JobOptions& job, Observer& observer, std::uint64_t first = 0,
          std::uint64_t stop = std::numeric_limits<std::uint64_t>::max(), EvaluationHooks evaluation = {}) {
  Log log;
  Registries registries;
  register_builtins(registries);
  registries.strategies.add("recording", "", [&](const Spec&) {
    return std::make_unique<StrategyKind>(
        StrategyKind{.one_worker = true, .make = [&](const Plan& plan, const World& world) {
                       return std::make_unique<Recording>(plan, world, log, first);
                     }});
  });
  optim::OptimizerRegistry optimizers;
  optim::register_builtin_optimizers(optimizers);
  const TrainSetup setup(job, registries, optimizers);
  MemoryLedger memory;
  const SystemClock clock;
  Events events(clock);
  Training training(
      setup, {}, {.memory = memory, .clock = clock, .events = events},
      {.may_begin = [&](std::uint64_t step) { return step < stop; }, .evaluation = std::move(evaluation)});
  events.listen(observer, Events::Wanted::reports);
  training.run();
  return log;
}

Log train(const JobOptions& job) {
  Observer observer;
  return train(job, observer);
}

/// The part between two lines, without them.
Log between(const Log& log, const std::string& first, const std::string& last) {
  const auto begin = std::find(log.begin(), log.end(), first);
  const auto end = std::find(begin, log.end(), last);
  REQUIRE(end != log.end());
  return {begin + 1, end};
}

Log mlp_pass(const std::string& ready) {
  return {">acquire layers.0", ">release layers.0",      ">acquire layers.1",       ">release layers.1",
          "<acquire layers.1", "<release layers.1",      "ready layers.1 " + ready, "<acquire layers.0",
          "<release layers.0", "ready layers.0 " + ready};
}

Log operator+(Log a, const Log& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

}  // namespace

TEST_CASE("each unit is acquired before its layers and released after, and ready in reverse order") {
  const Log log = train(job_of("mlp:6-5-3"));
  CHECK(log.front() == "start");
  CHECK(log[1] == "begin 0");
  CHECK(between(log, "begin 0", "finish 0") == mlp_pass("0 last"));
}

TEST_CASE("a unit is ready once a micro-batch, the last one marked") {
  JobOptions job = job_of("mlp:6-5-3");
  job.accumulate = 3;
  CHECK(between(train(job), "begin 0", "finish 0") == mlp_pass("0") + mlp_pass("1") + mlp_pass("2 last"));
  job.accumulate = 1;
  job.virtual_workers = 2;
  CHECK(between(train(job), "begin 0", "finish 0") == mlp_pass("0 last of 0") + mlp_pass("0 last of 1"));
}

TEST_CASE("a worker without samples does as the others do, and hands over zeros") {
  JobOptions job = job_of("mlp:6-5-3");
  job.data = "synthetic:samples=5";  // of the second step, worker 0 has one sample and worker 1 none
  job.pad = "none";
  job.virtual_workers = 2;
  job.steps = 2;
  Observer observer;
  const Log log = between(train(job, observer), "begin 1", "finish 1");
  CHECK(log == mlp_pass("0 last of 0") + mlp_pass("0 last of 1 zero"));
  REQUIRE(observer.steps.size() == 2);
  CHECK(observer.steps[0].samples == 4);
  CHECK(observer.steps[1].samples == 1);
}

TEST_CASE("a unit with shared tensors is held from embedding to head, and ready after the embedding's backward") {
  const auto units = GENERATE(values<std::string>({"layer", "block"}));
  JobOptions job = job_of("gpt:layers=1,dim=8,heads=2,context=4,vocab=11");
  job.units = units;
  const Log log = between(train(job), "begin 0", "finish 0");
  CHECK(log.front() == ">acquire root");
  const auto at = [&](const std::string& line) {
    CHECK(std::count(log.begin(), log.end(), line) == 1);
    return std::find(log.begin(), log.end(), line) - log.begin();
  };
  CHECK(at(">release root") + 1 == at("<acquire root"));
  CHECK(at("<release root") == static_cast<std::ptrdiff_t>(log.size()) - 2);
  CHECK(log.back() == "ready root 0 last");
  // Between them, the other units in order there and back.
  const Log inner(log.begin() + 1, log.begin() + at(">release root"));
  const std::size_t others = units == "block" ? 1 : 2;
  CHECK(inner.size() == 2 * others);
  Log order;
  for (const std::string& line : log)
    if (line.starts_with("ready ")) order.push_back(line);
  CHECK(order.size() == others + 1);
}

TEST_CASE("layers without parameters have no unit") {
  const Log log = between(train(job_of("gelu-mlp:dim=4,layers=2")), "begin 0", "finish 0");
  CHECK(log == mlp_pass("0 last"));
}

TEST_CASE("backward ends where nothing before is trained, and what is not trained is never ready") {
  JobOptions job = job_of("mlp:6-5-4-4-3");
  const auto backward = [&](const char* freeze) {
    job.freeze = freeze;
    return between(train(job), ">release layers.3", "finish 0");
  };
  CHECK(backward("0,2") == Log{"<acquire layers.3", "<release layers.3", "ready layers.3 0 last", "<acquire layers.2",
                               "<release layers.2", "<acquire layers.1", "<release layers.1", "ready layers.1 0 last"});
  CHECK(backward("0,1,2") == Log{"<acquire layers.3", "<release layers.3", "ready layers.3 0 last"});
  CHECK(backward("3").front() == "<acquire layers.3");
  // A unit that is held from end to end goes once backward is through the last layer that is wanted.
  job.model = "gpt:layers=2,dim=8,heads=2,context=4,vocab=11";
  job.units = "block";
  job.freeze = "root,h.0";
  CHECK(between(train(job), ">release root", "finish 0") ==
        Log{"<acquire root", "<release root", "<acquire h.1", "<release h.1", "ready h.1 0 last"});
}

TEST_CASE("a worker without samples passes what the others do") {
  JobOptions job = job_of("mlp:6-5-4-4-3");
  job.freeze = "0,2";
  const Log all = train(job);
  job.data = "synthetic:samples=5";
  job.pad = "none";
  job.virtual_workers = 2;
  job.steps = 2;
  const Log pass = between(all, "begin 0", "finish 0");
  const Log empty = between(train(job), "begin 1", "finish 1");
  REQUIRE(empty.size() == 2 * pass.size());
  for (std::size_t i = 0; i < pass.size(); ++i) CHECK(empty[pass.size() + i].substr(0, 15) == pass[i].substr(0, 15));
}

TEST_CASE("evaluation acquires for a forward pass, when it is due and at the end") {
  JobOptions job = job_of("mlp:6-5-3");
  job.steps = 5;
  job.eval_every = 2;
  Observer observer;
  const Log log = train(job, observer);
  CHECK(between(log, "finish 1", "begin 2") ==
        Log{"quiesce", ">acquire layers.0", ">release layers.0", ">acquire layers.1", ">release layers.1"});
  CHECK(between(log, "finish 0", "begin 1").empty());
  CHECK(std::count(log.begin(), log.end(), "quiesce") >= 3);
  REQUIRE(observer.evaluations.size() == 3);
  CHECK(observer.evaluations[0].step == 2);
  CHECK(observer.evaluations[1].step == 4);
  CHECK(observer.evaluations[2].step == 5);
  for (const Evaluation& evaluation : observer.evaluations) CHECK(evaluation.rows == 4);
  job.steps = 4;  // the last one is not done twice
  Observer four;
  train(job, four);
  REQUIRE(four.evaluations.size() == 2);
  CHECK(four.evaluations[1].step == 4);
}

TEST_CASE("a job that goes on begins where its strategy says, with what may not have been done before that step") {
  const test::TemporaryFolder folder;
  JobOptions job = job_of("mlp:6-5-3");
  job.steps = 4;
  job.eval_every = 2;
  job.checkpoint_every = 4;
  job.checkpoint_dir = folder.file("saved");
  const auto before_first = [&](std::uint64_t first, Observer& observer) {
    const Log log = train(job, observer, first);
    const std::string next = fmt::format("begin {}", first);
    const auto end = std::find(log.begin(), log.end(), next);
    if (first < job.steps) CHECK(end != log.end());
    Log kept;
    std::copy_if(log.begin(), end, std::back_inserter(kept), [](const std::string& line) {
      return line == "start" || line == "quiesce" || line.starts_with("saved");
    });
    return kept;
  };
  Observer fresh;
  CHECK(before_first(0, fresh) == Log{"start"});
  CHECK(fresh.steps.size() == 4);
  job.steps = 6;
  Observer saved;  // the checkpoint of step 4 is there: the first run made it
  CHECK(before_first(4, saved) == Log{"start", "quiesce", "quiesce"});
  std::filesystem::remove_all(folder.file("saved"));
  Observer odd;
  CHECK(before_first(3, odd) == Log{"start"});
  REQUIRE(odd.steps.size() == 3);
  CHECK(odd.steps[0].step == 3);
  std::filesystem::remove_all(folder.file("saved"));
  Observer even;
  CHECK(before_first(2, even) == Log{"start", "quiesce"});
  REQUIRE(even.evaluations.size() == 3);
  CHECK(even.evaluations[0].step == 2);
  std::filesystem::remove_all(folder.file("saved"));
  Observer unsaved;
  CHECK(before_first(4, unsaved) == Log{"start", "quiesce", "quiesce", "saved 4"});
  std::filesystem::remove_all(folder.file("saved"));
  Observer last;
  CHECK(before_first(6, last) == Log{"start", "quiesce", "saved 6", "quiesce", "quiesce"});
  CHECK(last.steps.empty());
  REQUIRE(last.evaluations.size() == 1);
  CHECK(last.evaluations[0].step == 6);
}

/// A process may be lost after a checkpoint was made, and before all had said that they ended.
TEST_CASE("a job that is interrupted again before the same step does not save it again") {
  const test::TemporaryFolder folder;
  JobOptions job = job_of("mlp:6-5-3");
  job.steps = 6;
  job.checkpoint_every = 4;
  job.checkpoint_dir = folder.file("saved");
  Observer observer;
  CHECK(train(job, observer, 0, 3).back() == "saved 3");
  CHECK(observer.steps.size() == 3);
  CHECK(train(job, observer, 3, 3) == Log{"start", "quiesce", "quiesce"});
}

TEST_CASE("steps report their epoch, and what they saw of a short last batch") {
  JobOptions job = job_of("mlp:6-5-3");
  job.data = "synthetic:samples=10";
  job.steps = 7;
  job.accumulate = 3;  // the short batch has fewer samples than that
  Observer observer;
  train(job, observer);
  REQUIRE(observer.steps.size() == 7);
  for (std::uint64_t step = 0; step < 7; ++step) {
    CHECK(observer.steps[step].step == step);
    CHECK(observer.steps[step].epoch == step / 3);
    CHECK(observer.steps[step].samples == (step % 3 == 2 ? 2 : 4));
    CHECK(observer.steps[step].loss > 0);
  }
}

TEST_CASE("an evaluation asks before each piece, and is not reported if it ends early") {
  JobOptions job = job_of("mlp:8-6-4");
  job.data = "synthetic:samples=120";  // 12 of the test set, in pieces of 4
  job.steps = 3;
  job.eval_every = 2;
  std::vector<std::pair<std::uint64_t, std::uint64_t>> asked;
  std::vector<double> shares;
  std::uint64_t last_piece = 99;
  EvaluationHooks hooks{.may_begin =
                            [&](std::uint64_t step, std::uint64_t piece) {
                              asked.emplace_back(step, piece);
                              return piece < last_piece;
                            },
                        .goes_on = [&](double share) { shares.push_back(share); }};
  Observer whole;
  train(job, whole, 0, 99, hooks);
  CHECK(asked == std::vector<std::pair<std::uint64_t, std::uint64_t>>{{2, 0}, {2, 1}, {2, 2}, {3, 0}, {3, 1}, {3, 2}});
  CHECK(whole.evaluations.size() == 2);
  REQUIRE(shares.size() == 6);
  CHECK(shares[0] == 0);
  CHECK(shares[2] == Approx(2.0 / 3));
  last_piece = 1;
  Observer cut;
  train(job, cut, 0, 99, hooks);
  CHECK(cut.evaluations.empty());
  CHECK(cut.steps.size() == 3);
}

TEST_CASE("a loss that is not finite stops the run with the step and the unit") {
  const auto clip_norm = GENERATE(values({0.0, 1.0}));
  JobOptions job = job_of("mlp:6-5-3");
  job.strategy = "single";
  job.steps = 50;
  job.lr = 1e30;
  job.clip_norm = clip_norm;
  Observer observer;
  const std::string text = test::error_of(ErrorKind::data, [&] { train(job, observer); });
  CHECK_THAT(text, Catch::StartsWith(fmt::format("step {}: the output of unit 'layers.", observer.steps.size())));
  CHECK_THAT(text, Catch::Contains("--lr"));
  CHECK(observer.steps.size() < 50);
  CHECK(!observer.steps.empty());
}
