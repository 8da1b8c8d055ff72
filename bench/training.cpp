#include <cstdio>
#include <optional>

#include <psring/bench/compute.h>
#include <psring/bench/exchange/psring_link.h>
#include <psring/bench/peers/processes.h>
#include <psring/bench/report.h>
#include <psring/bench/step_observer.h>
#include <psring/bench/training.h>
#include <psring/common/base/events/events.h>
#include <psring/common/base/system/standard_files.h>
#include <psring/common/base/text/error.h>
#include <psring/common/base/text/json.h>
#include <psring/worker/registries.h>
#include <psring/worker/servers/ps_client.h>
#include <psring/worker/training.h>

namespace psring::bench {
namespace {

constexpr double kStepLearningRate = 0.1;

class StepBench {
 public:
  explicit StepBench(const TrainingOptions& options) : options_(options), kind_(parse_kind(options.transport)) {
    worker::register_builtins(registries_);
    optim::register_builtin_optimizers(optimizers_);
    JobOptions job{.model = options.model, .data = "synthetic", .workers = 1, .global_batch = options.batch};
    job.steps = options.steps + options.warm_up;
    job.seed = 7;
    job.lr = kStepLearningRate;
    for (auto& [setup, name] : {std::pair{&ps_, "ps"}, {&single_, "single"}}) {
      job.strategy = name;
      setup->emplace(job, registries_, optimizers_);
    }
  }

  void run() {
    const std::string machine = describe_machine();
    out::print(
        "{}\n{} batch {}: a step of ps (1 worker, 1 server, 2 processes, {}) beside one of single; {} rounds of {} "
        "steps in turn\n\n",
        machine, options_.model, options_.batch, options_.transport, options_.rounds, options_.steps);
    Samples ps;
    Samples single;
    Samples exposed;
    for (std::size_t round = 0; round < options_.rounds; ++round) {
      const StepObserver alone = run_single();
      const StepObserver with_server = run_ps();
      if (alone.losses != with_server.losses)
        fail(ErrorKind::check_failed, "{}: ps and single do not have the same losses", options_.model);
      ps.values.push_back(with_server.steps.median());
      single.values.push_back(alone.steps.median());
      exposed.values.push_back(with_server.exposed.median());
    }
    print("single", single, single);
    print("ps", ps, single);
    out::print("ps waits {:.1f} us of a step for the server (median)\n", 1e6 * exposed.median());
    if (options_.json.empty()) return;
    const Json report{{"machine", machine},
                      {"model", options_.model},
                      {"batch", options_.batch},
                      {"ps_s", ps.values},
                      {"single_s", single.values},
                      {"exposed_s", exposed.values},
                      {"ratio", ps.median_ratio(single)}};
    write_json_file(options_.json, report.dump(1));
  }

 private:
  void print(const char* name, const Samples& step, const Samples& single) const {
    out::print("{:<8} {:>9.1f} us a step, spread {:>3.0f} %, least {:>9.1f} us, {:>8.0f} samples/s, {:.3f} of single\n",
               name, 1e6 * step.median(), 100 * step.spread(), 1e6 * step.least(),
               static_cast<double>(options_.batch) / step.median(), step.median_ratio(single));
  }

  StepObserver run_single() {
    StepObserver observer(options_.warm_up);
    MemoryLedger memory;
    Events events(clock_);
    worker::Training training(*single_, {}, {.memory = memory, .clock = clock_, .events = events});
    events.listen(observer, Events::Wanted::reports);
    training.run();
    return observer;
  }

  StepObserver run_ps() {
    ServerProcesses servers;
    const std::string endpoint = servers.start({.kind = kind_, .elements = {1}, .lr = kStepLearningRate});
    PsringLink link(kind_, endpoint, servers.key_file(), worker::lent_bytes(ps_->layout()));
    StepObserver observer(options_.warm_up);
    MemoryLedger memory;
    Events events(clock_);
    worker::Training training(
        *ps_, {},
        {.memory = memory, .clock = clock_, .events = events, .arena = &link.arena(), .transport = &link.transport()});
    events.listen(observer, Events::Wanted::reports);
    training.run();
    return observer;
  }

  const TrainingOptions options_;
  const Kind kind_;
  const SystemClock clock_;
  worker::Registries registries_;
  optim::OptimizerRegistry optimizers_;
  std::optional<worker::TrainSetup> ps_;
  std::optional<worker::TrainSetup> single_;
};

}  // namespace

void bench_step(const TrainingOptions& options) { StepBench(options).run(); }

void bench_models(const std::vector<ComputeCase>& cases, std::size_t rounds, const std::string& json) {
  const std::string machine = describe_machine();
  out::print(
      "{}\nforward and backward, f32, 1 thread, needed operations only, beside oneDNN on the step's own matrix "
      "products; "
      "medians of {} rounds in turn\n\n",
      machine, rounds);
  out::print("{:<54} {:>5} {:>9} {:>9} {:>7} {:>8} {:>10} {:>11}\n", "model", "batch", "GFLOP/s", "ceiling", "ratio",
             "CPU-time", "samples/s", "rows/s");
  worker::Registries registries;
  worker::register_builtins(registries);
  Json report{{"machine", machine}, {"rounds", rounds}, {"rows", Json::array()}};
  for (const ComputeCase& each : cases) {
    const auto model = registries.models.make(Spec::parse("--model", each.model));
    const ComputeRates rates = measure_compute(*model, each.batch, rounds);
    const double samples = rates.samples_per_second;
    const double rows = samples * static_cast<double>(model->rows_per_sample);
    out::print("{:<54} {:>5} {:>9.1f} {:>9.1f} {:>7.3f} {:>8.3f} {:>10.1f} {:>11.1f}\n", each.model, each.batch,
               rates.wall_step, rates.wall_ceiling, rates.wall_ratio(), rates.ratio(), samples, rows);
    std::fflush(stdout);
    report["rows"].push_back({{"model", each.model},
                              {"batch", each.batch},
                              {"gflops", rates.wall_step},
                              {"ceiling_gflops", rates.wall_ceiling},
                              {"ratio", rates.wall_ratio()},
                              {"processor_time_ratio", rates.ratio()},
                              {"spread", rates.spread},
                              {"samples_per_second", samples},
                              {"rows_per_second", rows}});
  }
  if (!json.empty()) write_json_file(json, report.dump(1));
}

}  // namespace psring::bench
