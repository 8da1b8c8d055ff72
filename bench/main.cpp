#include <initializer_list>
#include <utility>

#include <fmt/core.h>
#include <version.h>

#include <psring/bench/collectives_flags.h>
#include <psring/bench/exchange/exchange.h>
#include <psring/bench/exchange/push_pull.h>
#include <psring/bench/gpu_step.h>
#include <psring/bench/ring_training.h>
#include <psring/bench/rows/rows.h>
#include <psring/bench/training.h>
#include <psring/cli/app.h>
#include <psring/cli/options/option_list.h>
#include <psring/cli/options/parse.h>
#include <psring/common/base/allocator.h>
#include <psring/common/base/system/standard_files.h>
#include <psring/common/base/text/error.h>
#include <psring/common/base/text/spec.h>
#include <psring/common/proc/options/check.h>

using namespace psring;

namespace {

std::size_t vector_bytes(const char* flag, const std::string& text) {
  const std::size_t bytes = parse_bytes(flag, text);
  if (bytes < sizeof(float) || bytes % sizeof(float) != 0 || bytes > (std::size_t{1} << 32))
    fail(ErrorKind::usage, "{}: expected a multiple of 4 bytes, up to 4G, got '{}'", flag, text);
  return bytes;
}

/// Throws usage if a count of rounds, steps or iterations is out of its range.
void check_counts(std::initializer_list<std::pair<const char*, std::size_t>> counts, bool may_be_zero = false) {
  constexpr std::size_t kMost = 1'000'000;
  for (const auto& [flag, count] : counts)
    if (count > 0 || !may_be_zero) options::check_count(flag, count, kMost);
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
    const PushPullFlags plain;
    if (!sizes.empty() && (begin != plain.begin || end != plain.end || factor != plain.factor))
      fail(ErrorKind::usage, "--sizes: takes the place of --begin, --end and --factor");
    if (sizes.empty()) {
      const std::size_t last = vector_bytes("--end", end);
      if (factor < 2) fail(ErrorKind::usage, "--factor: expected a number > 1, got {}", factor);
      for (std::size_t size = vector_bytes("--begin", begin); size <= last; size *= factor)
        options.sizes.push_back(size);
      if (options.sizes.empty()) fail(ErrorKind::usage, "--begin {} is larger than --end {}", begin, end);
    }
    check_counts({{"--rounds", options.rounds}});
    check_counts({{"--iterations", options.iterations}, {"--warm-up", options.warm_up}}, true);
    options::check_count("--server-threads", options.server_threads, options::kMostThreads);
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
    if (!only.empty()) bench::one_of("--only", only, {"step", "compute", "ring"});
    bench::one_of("--transport", options.transport, {"shm", "tcp", "tcp-encrypted"});
    check_counts({{"--rounds", options.rounds}, {"--steps", options.steps}});
    check_counts({{"--warm-up", options.warm_up}}, true);
    if (workers < 2 || workers > 64) fail(ErrorKind::usage, "--workers: expected 2 to 64, got {}", workers);
    if (!options.json.empty() && (only.empty() || (only == "ring" && model.empty())))
      fail(ErrorKind::usage, "--json: holds one report; choose with --only, and ring's model with --model");
    if (!model.empty()) options.model = model;
    if (batch != 0) options.batch = batch;
    const auto chosen = [&](const char* report) { return only.empty() || only == report; };
    if (chosen("step")) bench::bench_step(options);
    if (only.empty()) out::print("\n");
    if (chosen("compute")) bench::bench_models(compute_cases(), options.rounds, options.json);
    if (!chosen("ring")) return 0;
    for (const bench::RingTrainingOptions& each : ring_cases()) {
      if (only.empty() || model.empty()) out::print("\n");
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

struct RowsFlags {
  bench::RowsOptions options;
  std::string rows = "5M";
  std::vector<std::size_t> widths{16, 64};
  std::string transport = "all";

  int run() {
    bench::one_of("--transport", transport, {"shm", "tcp", "all"});
    check_counts({{"--rounds", options.rounds}, {"--iterations", options.iterations}});
    check_counts({{"--warm-up", options.warm_up}}, true);
    options.rows = count_of(rows);
    options.widths = widths;
    if (options.rows > 1'000'000'000) fail(ErrorKind::usage, "--rows {}: expected at most 1000M", rows);
    for (const std::size_t width : widths)
      if (width == 0 || width > 8192) fail(ErrorKind::usage, "--dim: expected numbers from 1 to 8192, got {}", width);
    if (options.lookups == 0 || options.lookups > std::size_t{1} << 24)
      fail(ErrorKind::usage, "--lookups: expected 1 to 16777216, got {}", options.lookups);
    if (!(options.zipf >= 0 && options.zipf <= 4))
      fail(ErrorKind::usage, "--zipf: expected 0 to 4, got {}", options.zipf);
    options.shm = transport != "tcp";
    options.tcp = transport != "shm";
    bench::bench_rows(options);
    return 0;
  }

 private:
  /// 50k is 50,000 and 5M is 5,000,000.
  static std::size_t count_of(std::string text) {
    const std::size_t unit = text.ends_with('M') ? 1'000'000 : text.ends_with('k') ? 1000 : 1;
    if (unit > 1) text.pop_back();
    return unit * parse_positive("--rows", text);
  }
};

void add_push_pull(const cli::Flags& program, PushPullFlags& flags) {
  const cli::Flags command =
      program.add_command("push_pull", "push and pull of one vector, compared with bare sockets and ZeroMQ");
  bench::PushPullOptions& options = flags.options;
  command.add("-b,--begin", flags.begin, "smallest size in bytes (4K, 1M)").show_default();
  command.add("-e,--end", flags.end, "largest size").show_default();
  command.add("-f,--factor", flags.factor, "factor from one size to the next").show_default();
  command.add("--sizes", flags.sizes, "a list of sizes, in place of --begin and --end: 4K,1M,64M").separate_by(',');
  command.add("-n,--iterations", options.iterations, "per round; 0: depends on the size").show_default();
  command.add("-w,--warm-up", options.warm_up, "exchanges before the first round; each is checked").show_default();
  command.add("--rounds", options.rounds, "number of rounds; the report shows medians").show_default();
  command.add("--transport", flags.transport, "shm, tcp or all").show_default();
  command.add("--encrypt", flags.encrypt, "on: TCP under CURVE, beside cppzmq under CURVE").show_default();
  command.add("--server-threads", options.server_threads, "compute threads of psring's server").show_default();
  command.add_switch("--check", options.check, "compare all results after timing, too");
  command.add("--json", options.json, "write all samples to this file").show_value("FILE");
}

void add_train(const cli::Flags& program, TrainFlags& flags) {
  const cli::Flags command =
      program.add_command("train",
                          "a step of ps, and of workers on the ring, compared with a step of single; the "
                          "computation compared with oneDNN's own rate");
  bench::TrainingOptions& options = flags.options;
  command.add("--only", flags.only, "step (of ps), compute or ring (all)");
  command.add("--model", flags.model,
              "mlp:784-512-512-10, gpt:layers=6,... (the MLP; for computing and the ring the GPT as well)");
  command.add("--batch", flags.batch, "samples per step (MLP 128, GPT 8)");
  command.add("--workers", flags.workers, "workers of ring").show_default();
  command.add("--worker-batch", flags.worker_batch, "samples per worker and step of ring (MLP 64, GPT 8)");
  command.add("--strategy", flags.strategy, "strategy of ring").show_default();
  command.add("--steps", options.steps, "timed steps per round").show_default();
  command.add("-w,--warm-up", options.warm_up, "steps per round before the timed ones").show_default();
  command.add("--rounds", options.rounds, "number of rounds; the report shows medians").show_default();
  command.add("--transport", options.transport, "transport of ps: shm, tcp or tcp-encrypted").show_default();
  command.add("--json", options.json, "write all samples to this file").show_value("FILE");
}

void add_rows(const cli::Flags& program, RowsFlags& flags) {
  const cli::Flags command =
      program.add_command("rows", "pull and push of rows of a table, compared with the machine's floor and ps-lite");
  bench::RowsOptions& options = flags.options;
  command.add("--rows", flags.rows, "rows of the table (50k, 5M)").show_default();
  command.add("--dim", flags.widths, "a list of widths of a row").separate_by(',').show_default();
  command.add("--lookups", options.lookups, "lookups of a batch, whose different keys are exchanged").show_default();
  command.add("--zipf", options.zipf, "exponent of the keys' distribution; 0: uniform").show_default();
  command.add("--transport", flags.transport, "shm, tcp or all").show_default();
  command.add("--peers", options.peers, "libraries that are measured beside psring: ps-lite").separate_by(',');
  command.add("-n,--iterations", options.iterations, "batches per round").show_default();
  command.add("-w,--warm-up", options.warm_up, "batches before the first round; each is checked").show_default();
  command.add("--rounds", options.rounds, "number of rounds; the report shows medians").show_default();
  command.add_switch("--check", options.check, "compare rows after timing, too");
  command.add("--json", options.json, "write all samples to this file").show_value("FILE");
}

void add_gpu(const cli::Flags& program, bench::GpuStepOptions& options) {
  const cli::Flags command =
      program.add_command("gpu", "a step on a GPU, kernel by kernel, and the lower bound of each kernel's time");
  command.add("--model", options.model, "gpt:layers=12,... (GPT-2 124M)").show_default();
  command.add("--batch", options.batch, "samples per step").show_default();
  command.add("--precision", options.precision, "f32, bf16 or f16").show_default();
  command.add("--optimizer", options.optimizer, "update rule").show_default();
  command.add("--steps", options.steps, "timed steps").show_default();
  command.add("-w,--warm-up", options.warm_up, "steps before the timed ones").show_default();
}

void add_serve(const cli::Flags& program, bench::ServerPlan& plan, std::string& kind) {
  const cli::Flags command = program.add_command("serve", "");
  command.hide();  // started by the other commands
  command.add("--kind", kind).require();
  command.add("--key", plan.key_file).require();
  command.add("--elements", plan.elements).require();
  command.add("--threads", plan.threads);
  command.add("--lr", plan.lr);
  command.add("--endpoint-fd", plan.endpoint_fd).require();
}

void add_train_rank(const cli::Flags& program, bench::TrainingRank& rank) {
  const cli::Flags command = program.add_command("train-rank", "");
  command.hide();  // started by train
  command.add("--rank", rank.rank).require();
  command.add("--workers", rank.options.workers).require();
  command.add("--model", rank.options.model).require();
  command.add("--strategy", rank.options.strategy).require();
  command.add("--worker-batch", rank.options.worker_batch).require();
  command.add("--steps", rank.options.steps).require();
  command.add("--warm-up", rank.options.warm_up).require();
  command.add("--rounds", rank.options.rounds).require();
  command.add("--key", rank.key_file).require();
  command.add("--address", rank.address).require();
}

int run(int argc, char** argv) {
  open_standard_files();
  raise_open_files_limit();
  tune_allocator();
  cli::CommandLine line("psring-bench: measures psring on this machine, and its baselines",
                        fmt::format("psring {} ({})", cli::kVersion, cli::kCommit));
  const cli::Flags program = line.program();
  PushPullFlags push_pull;
  RowsFlags rows;
  TrainFlags train;
  bench::CollectivesFlags collectives;
  bench::GpuStepOptions gpu;
  bench::ServerPlan plan;
  bench::TrainingRank training_rank;
  std::string kind;
  collectives.add(program.parser());
  add_push_pull(program, push_pull);
  add_rows(program, rows);
  add_train(program, train);
  add_gpu(program, gpu);
  add_serve(program, plan, kind);
  add_train_rank(program, training_rank);
  program.add_command("options", "").hide();  // for scripts/manual
  const auto typed = [&line](const char* name) { return line.typed_command() == name; };
  return line.run(std::vector<std::string>(argv, argv + argc), [&] {
    if (typed("push_pull")) return push_pull.run();
    if (typed("rows")) return rows.run();
    if (typed("train")) return train.run();
    if (typed("gpu")) {
      check_counts({{"--steps", gpu.steps}});
      check_counts({{"--warm-up", gpu.warm_up}}, true);
      return bench::bench_gpu_step(gpu), 0;
    }
    if (typed("options")) return out::print("{}\n", cli::describe_program("psring-bench", program).dump(2)), 0;
    if (typed("train-rank")) return bench::run_training_rank(training_rank);
    if (const auto status = collectives.run(program.parser())) return *status;
    plan.kind = bench::parse_kind(kind);
    bench::serve_exchange(plan);
    return 0;
  });
}

}  // namespace

int main(int argc, char** argv) {
  return App::guard([&] { return run(argc, argv); });
}
