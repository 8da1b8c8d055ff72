#include <memory>

#include <CLI/CLI.hpp>
#include <version.h>

#include <psring/bench/collectives_flags.h>
#include <psring/bench/exchange.h>
#include <psring/bench/gpu_step.h>
#include <psring/bench/push_pull.h>
#include <psring/bench/ring_training.h>
#include <psring/bench/training.h>
#include <psring/cli/app.h>
#include <psring/cli/help.h>
#include <psring/cli/parse.h>
#include <psring/common/base/allocator.h>
#include <psring/common/base/error.h>
#include <psring/common/base/spec.h>
#include <psring/common/base/standard_files.h>

using namespace psring;

namespace {

std::size_t vector_bytes(const char* flag, const std::string& text) {
  const std::size_t bytes = parse_bytes(flag, text);
  if (bytes < sizeof(float) || bytes % sizeof(float) != 0 || bytes > (std::size_t{1} << 32))
    fail(ErrorKind::usage, "{}: expected a multiple of 4 bytes, up to 4G, got '{}'", flag, text);
  return bytes;
}

struct PushPullFlags {
  bench::PushPullOptions options;
  std::string begin = "4K";
  std::string end = "64M";
  std::size_t factor = 16;
  std::vector<std::string> sizes;
  std::string transport = "all";
  std::string encrypt = "off";

  int run() {
    bench::one_of("--transport", transport, {"shm", "tcp", "all"});
    bench::one_of("--encrypt", encrypt, {"on", "off"});
    for (const std::string& size : sizes) options.sizes.push_back(vector_bytes("--sizes", size));
    if (sizes.empty()) {
      const std::size_t last = vector_bytes("--end", end);
      if (factor < 2) fail(ErrorKind::usage, "--factor: expected a number > 1, got {}", factor);
      for (std::size_t size = vector_bytes("--begin", begin); size <= last; size *= factor)
        options.sizes.push_back(size);
      if (options.sizes.empty()) fail(ErrorKind::usage, "--begin {} is larger than --end {}", begin, end);
    }
    if (options.rounds == 0) fail(ErrorKind::usage, "--rounds: expected a number > 0");
    if (options.server_threads == 0) fail(ErrorKind::usage, "--server-threads: expected a number > 0");
    options.shm = transport != "tcp";
    options.tcp = transport != "shm";
    options.encrypt = encrypt == "on";
    if (options.encrypt && !options.tcp) fail(ErrorKind::usage, "--encrypt on: shared memory has nothing to encrypt");
    bench::bench_push_pull(options);
    return 0;
  }
};

struct TrainFlags {
  bench::TrainingOptions options;
  std::string only;
  std::string model;
  std::string strategy = "ddp";
  std::size_t batch = 0;
  std::size_t workers = 2;
  std::size_t worker_batch = 0;

  int run() {
    bench::one_of("--only", only, {"", "step", "compute", "ring"});
    bench::one_of("--transport", options.transport, {"shm", "tcp", "tcp-encrypted"});
    if (options.rounds == 0) fail(ErrorKind::usage, "--rounds: expected a number > 0");
    if (options.steps == 0) fail(ErrorKind::usage, "--steps: expected a number > 0");
    if (workers < 2 || workers > 64) fail(ErrorKind::usage, "--workers: expected 2 to 64, got {}", workers);
    if (!options.json.empty() && (only.empty() || (only == "ring" && model.empty())))
      fail(ErrorKind::usage, "--json: holds one report; choose with --only, and ring's model with --model");
    if (!model.empty()) options.model = model;
    if (batch != 0) options.batch = batch;
    const auto chosen = [&](const char* report) { return only.empty() || only == report; };
    if (chosen("step")) bench::bench_step(options);
    if (only.empty()) fmt::print("\n");
    if (chosen("compute")) bench::bench_models(compute_cases(), options.rounds, options.json);
    if (!chosen("ring")) return 0;
    for (const bench::RingTrainingOptions& each : ring_cases()) {
      if (only.empty() || model.empty()) fmt::print("\n");
      bench::bench_ring_training(each);
    }
    return 0;
  }

 private:
  static constexpr const char* kMlp = "mlp:784-512-512-10";
  static constexpr const char* kGpt = "gpt:layers=6,dim=384,heads=6,context=256,vocab=256";

  std::vector<bench::ComputeCase> compute_cases() const {
    if (!model.empty()) return {{model, options.batch}};
    return {{kMlp, batch != 0 ? batch : 128}, {kGpt, batch != 0 ? batch : 8}};
  }
  std::vector<bench::RingTrainingOptions> ring_cases() const {
    bench::RingTrainingOptions mlp{.model = kMlp,
                                   .batch = options.batch,
                                   .worker_batch = worker_batch != 0 ? worker_batch : (options.batch + 1) / 2,
                                   .workers = workers,
                                   .strategy = strategy,
                                   .steps = options.steps,
                                   .warm_up = options.warm_up,
                                   .rounds = options.rounds,
                                   .json = options.json};
    if (!model.empty()) {
      mlp.model = model;
      return {mlp};
    }
    bench::RingTrainingOptions gpt = mlp;
    gpt.model = kGpt;
    gpt.batch = gpt.worker_batch = 8;
    gpt.steps = std::max<std::size_t>(1, options.steps / 25);  // a step of the GPT takes some hundred times as long
    gpt.warm_up = options.warm_up / 10;
    return {mlp, gpt};
  }
};

void add_push_pull(CLI::App& root, PushPullFlags& flags) {
  CLI::App* command =
      root.add_subcommand("push_pull", "push and pull of one vector, compared with bare sockets and ZeroMQ");
  bench::PushPullOptions& options = flags.options;
  command->add_option("-b,--begin", flags.begin, "smallest size in bytes (4K, 1M)")->capture_default_str();
  command->add_option("-e,--end", flags.end, "largest size")->capture_default_str();
  command->add_option("-f,--factor", flags.factor, "factor from one size to the next")->capture_default_str();
  command->add_option("--sizes", flags.sizes, "a list of sizes, in place of --begin and --end: 4K,1M,64M")
      ->delimiter(',');
  command->add_option("-n,--iterations", options.iterations, "per round; 0: depends on the size")
      ->capture_default_str();
  command->add_option("-w,--warm-up", options.warm_up, "exchanges before the first round; each is checked")
      ->capture_default_str();
  command->add_option("--rounds", options.rounds, "number of rounds; the report shows medians")->capture_default_str();
  command->add_option("--transport", flags.transport, "shm, tcp or all")->capture_default_str();
  command->add_option("--encrypt", flags.encrypt, "on: TCP under CURVE, beside cppzmq under CURVE")
      ->capture_default_str();
  command->add_option("--server-threads", options.server_threads, "compute threads of psring's server")
      ->capture_default_str();
  command->add_flag("--check", options.check, "compare all results after timing, too");
  command->add_option("--json", options.json, "write all samples to this file");
}

void add_train(CLI::App& root, TrainFlags& flags) {
  CLI::App* command =
      root.add_subcommand("train",
                          "a step of ps, and of workers on the ring, compared with a step of single; the "
                          "computation compared with oneDNN's own rate");
  bench::TrainingOptions& options = flags.options;
  command->add_option("--only", flags.only, "step (of ps), compute or ring (all)");
  command->add_option("--model", flags.model,
                      "mlp:784-512-512-10, gpt:layers=6,... (the MLP; for computing and the ring the GPT as well)");
  command->add_option("--batch", flags.batch, "samples per step (MLP 128, GPT 8)");
  command->add_option("--workers", flags.workers, "workers of ring")->capture_default_str();
  command->add_option("--worker-batch", flags.worker_batch, "samples per worker and step of ring (MLP 64, GPT 8)");
  command->add_option("--strategy", flags.strategy, "strategy of ring")->capture_default_str();
  command->add_option("--steps", options.steps, "timed steps per round")->capture_default_str();
  command->add_option("-w,--warm-up", options.warm_up, "steps per round before the timed ones")->capture_default_str();
  command->add_option("--rounds", options.rounds, "number of rounds; the report shows medians")->capture_default_str();
  command->add_option("--transport", options.transport, "transport of ps: shm, tcp or tcp-encrypted")
      ->capture_default_str();
  command->add_option("--json", options.json, "write all samples to this file");
}

void add_gpu(CLI::App& root, bench::GpuStepOptions& options) {
  CLI::App* command =
      root.add_subcommand("gpu", "a step on a GPU, kernel by kernel, and the lower bound of each kernel's time");
  command->add_option("--model", options.model, "gpt:layers=12,... (GPT-2 124M)")->capture_default_str();
  command->add_option("--batch", options.batch, "samples per step")->capture_default_str();
  command->add_option("--precision", options.precision, "f32, bf16 or f16")->capture_default_str();
  command->add_option("--optimizer", options.optimizer, "update rule")->capture_default_str();
  command->add_option("--steps", options.steps, "timed steps")->check(CLI::PositiveNumber)->capture_default_str();
  command->add_option("-w,--warm-up", options.warm_up, "steps before the timed ones")->capture_default_str();
}

void add_serve(CLI::App& root, bench::ServerPlan& plan, std::string& kind) {
  CLI::App* command = root.add_subcommand("serve", "");
  command->group("");  // started by the other commands
  command->add_option("--kind", kind)->required();
  command->add_option("--key", plan.key_file)->required();
  command->add_option("--elements", plan.elements)->required();
  command->add_option("--threads", plan.threads);
  command->add_option("--lr", plan.lr);
  command->add_option("--endpoint-fd", plan.endpoint_fd)->required();
}

void add_train_rank(CLI::App& root, bench::TrainingRank& rank) {
  CLI::App* command = root.add_subcommand("train-rank", "");
  command->group("");  // started by train
  command->add_option("--rank", rank.rank)->required();
  command->add_option("--workers", rank.options.workers)->required();
  command->add_option("--model", rank.options.model)->required();
  command->add_option("--strategy", rank.options.strategy)->required();
  command->add_option("--worker-batch", rank.options.worker_batch)->required();
  command->add_option("--steps", rank.options.steps)->required();
  command->add_option("--warm-up", rank.options.warm_up)->required();
  command->add_option("--rounds", rank.options.rounds)->required();
  command->add_option("--key", rank.key_file)->required();
  command->add_option("--address", rank.address)->required();
}

int run(int argc, char** argv) {
  open_standard_files();
  tune_allocator();
  CLI::App root("psring-bench: measures psring on this machine, and its baselines");
  root.set_version_flag("--version", fmt::format("psring {} ({})", cli::kVersion, cli::kCommit));
  root.require_subcommand(1);
  PushPullFlags push_pull;
  TrainFlags train;
  bench::CollectivesFlags collectives;
  bench::GpuStepOptions gpu;
  bench::ServerPlan plan;
  bench::TrainingRank training_rank;
  std::string kind;
  collectives.add(root);
  add_push_pull(root, push_pull);
  add_train(root, train);
  add_gpu(root, gpu);
  add_serve(root, plan, kind);
  add_train_rank(root, training_rank);
  cli::set_help_format(root);
  return cli::parse_and_run(root, std::vector<std::string>(argv, argv + argc), [&] {
    if (root.got_subcommand("push_pull")) return push_pull.run();
    if (root.got_subcommand("train")) return train.run();
    if (root.got_subcommand("gpu")) return bench::bench_gpu_step(gpu), 0;
    if (root.got_subcommand("train-rank")) return bench::run_training_rank(training_rank);
    if (const auto status = collectives.run(root)) return *status;
    plan.kind = bench::parse_kind(kind);
    bench::serve_exchange(plan);
    return 0;
  });
}

}  // namespace

int main(int argc, char** argv) {
  return App::guard([&] { return run(argc, argv); });
}
