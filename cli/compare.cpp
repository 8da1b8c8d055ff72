#include <algorithm>
#include <fstream>
#include <map>
#include <memory>
#include <sstream>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <psring/cli/commands.h>
#include <psring/cli/launch.h>
#include <psring/cli/options.h>
#include <psring/cli/summary.h>
#include <psring/common/base/error.h>
#include <psring/worker/training.h>

namespace psring::cli {
namespace {

struct CompareFlags {
  JobFlags job;
  std::vector<std::string> strategies{"single", "ps"};
  std::string out;
};

struct Row {
  Summary summary;
  std::string equality;  ///< of the final parameters with the reference's: "=", "differs", or "-"
  bool equal = true;
};

/// The virtual-worker run that `job` must end in the same bits as; none where there is nothing to compare.
std::string reference_key(const JobOptions& job, const worker::StrategyKind& kind) {
  return kind.exact && !kind.one_worker && job.aggregate == "mean" ? fmt::format("single-{}-workers", job.workers) : "";
}

bool same_bytes(const std::filesystem::path& a, const std::filesystem::path& b) {
  const auto read = [](const std::filesystem::path& file) {
    std::ifstream in(file, std::ios::binary);
    std::ostringstream text;
    if (!(text << in.rdbuf())) fail(ErrorKind::data, "{}: cannot read", file.string());
    return text.str();
  };
  return read(a) == read(b);
}

class Comparison {
 public:
  Comparison(const CompareFlags& flags, const Invocation& invocation, SignalWatch& signals)
      : flags_(flags), invocation_(invocation), signals_(signals), out_(make_run_folder(flags.out, "compare")) {}

  int run() {
    const auto& strategies = invocation_.app.worker_registries().strategies;
    std::vector<std::pair<std::string, JobOptions>> jobs;
    for (const std::string& strategy : flags_.strategies) {
      const auto kind = strategies.make(Spec::parse("--strategies", strategy));
      jobs.emplace_back(strategy, resolve(flags_.job, strategy, *kind, true, true));
    }
    for (const auto& [strategy, job] : jobs) {
      const auto kind = strategies.make(Spec::parse("--strategies", strategy));
      const auto folder = out_ / folder_name(strategy);
      Row row{.summary = run_job(job, folder, strategy), .equality = "-"};
      if (const std::string key = reference_key(job, *kind); !key.empty()) {
        row.equal = same_bytes(folder / "model.safetensors", reference(key, job) / "model.safetensors");
        row.equality = row.equal ? "=" : "differs";
      }
      rows_.push_back(std::move(row));
    }
    print_table();
    write_csv();
    fmt::print("run folder: {}\n", out_.string());
    const bool ok =
        std::all_of(rows_.begin(), rows_.end(), [](const Row& row) { return row.equal && row.summary.bytes_ok(); });
    if (!ok) fail(ErrorKind::check_failed, "bytes or equality differ: see the rows marked ✗");
    return 0;
  }

 private:
  static std::string folder_name(std::string strategy) {
    for (char& c : strategy)
      if (c == ':' || c == '/' || c == '=' || c == ',') c = '-';
    return strategy;
  }

  Summary run_job(JobOptions job, const std::filesystem::path& folder, const std::string& label) {
    const worker::TrainSetup setup = prepare(job, invocation_.app);
    job.steps = setup.steps();
    std::filesystem::create_directories(folder);
    job.out = folder.string();
    const LaunchResult result = launch(job, {.out = folder, .label = label}, signals_);
    if (result.status != 0) throw Error(kind_of_status(result.status), label + ": " + result.cause);
    join_traces(folder);
    return summarise(folder, job, invocation_);
  }

  /// Runs it once for all rows that need it.
  const std::filesystem::path& reference(const std::string& key, JobOptions job) {
    const auto found = references_.find(key);
    if (found != references_.end()) return found->second;
    job.virtual_workers = job.workers;
    job.workers = 1;
    job.servers = 0;
    job.strategy = "single";
    job.optimizer_on = "server";
    job.trace = false;
    run_job(job, out_ / key, key);
    return references_[key] = out_ / key;
  }

  void print_table() const {
    fmt::print("\n{:<12} {:>10} {:>9} {:>9} {:>13} {:>13} {:>9} {:>7} {:>7} {:>8}\n", "strategy", "samples/s",
               "step ms", "wait ms", "sent/step", "recv/step", "peak MiB", "loss", "acc", "equal");
    for (const Row& row : rows_) {
      const Summary& s = row.summary;
      const auto bytes = [&](const std::string& role, const char* direction) -> std::string {
        for (const ByteCheck& check : s.bytes)
          if (check.role == role && check.direction == direction)
            return fmt::format("{} {}", check.measured / s.steps, !check.predicted ? "—" : check.ok() ? "✓" : "✗");
        return "";
      };
      fmt::print("{:<12} {:>10.0f} {:>9.3f} {:>9.3f} {:>13} {:>13} {:>9.1f} {:>7.4f} {:>7} {:>8}\n", s.strategy,
                 s.samples_per_second, s.step_seconds * 1e3, s.exposed_seconds * 1e3, bytes("worker 0", "sent"),
                 bytes("worker 0", "received"), static_cast<double>(s.worker_peak_bytes) / 1048576.0, s.final_loss,
                 s.test_accuracy ? fmt::format("{:.4f}", *s.test_accuracy) : "—", row.equality);
      if (const std::string sent = bytes("servers", "sent"); !sent.empty())
        fmt::print("{:<12} {:>10} {:>9} {:>9} {:>13} {:>13}\n", "  servers", "", "", "", sent,
                   bytes("servers", "received"));
      if (s.bytes_ok()) continue;
      for (const ByteCheck& check : s.bytes)
        if (!check.ok())
          fmt::print("  ✗ {} {}: measured {} bytes in the run, predicted {}\n", check.role, check.direction,
                     check.measured, *check.predicted);
    }
    fmt::print(
        "bytes: payload of a worker (all servers together) a step; ✓ equals the formula. equal: final parameters "
        "have the bits of single --virtual-workers n.\n");
  }

  void write_csv() const {
    std::ofstream out(out_ / "compare.csv");
    out << "strategy,run,worker,step,epoch,time_s,loss,lr,samples,step_s,compute_s,comm_s,exposed_comm_s,bytes_sent,"
           "bytes_received,staleness\n";
    for (const std::string& strategy : flags_.strategies) append_metrics(out, strategy);
    if (!out.flush()) fail(ErrorKind::data, "{}: cannot write", (out_ / "compare.csv").string());
  }

  void append_metrics(std::ofstream& out, const std::string& strategy) const {
    static constexpr const char* kColumns[] = {
        "worker",    "step",   "epoch",          "time_s",     "loss",           "lr",       "samples", "step_s",
        "compute_s", "comm_s", "exposed_comm_s", "bytes_sent", "bytes_received", "staleness"};
    std::ifstream in(out_ / folder_name(strategy) / "metrics.jsonl");
    for (std::string line; std::getline(in, line);) {
      const auto json = nlohmann::json::parse(line, nullptr, false);
      if (json.is_discarded() || !json.contains("loss")) continue;
      out << '"' << strategy << "\",1";
      for (const char* column : kColumns) out << ',' << json.at(column).dump();
      out << '\n';
    }
  }

  const CompareFlags& flags_;
  const Invocation& invocation_;
  SignalWatch& signals_;
  const std::filesystem::path out_;
  std::vector<Row> rows_;
  std::map<std::string, std::filesystem::path> references_;
};

}  // namespace

Command add_compare(CLI::App& root) {
  CLI::App* command = root.add_subcommand("compare", "train the same model in several ways and set them side by side");
  auto flags = std::make_shared<CompareFlags>();  // shared: the parser fills it in, the command reads it
  command->add_option("--strategies", flags->strategies, "the ways")->delimiter(',')->capture_default_str();
  command->add_option("--out", flags->out, "run folder (a new one below runs/)");
  add_job_flags(*command, flags->job);
  return [flags](const Invocation& invocation) {
    SignalWatch signals;
    return Comparison(*flags, invocation, signals).run();
  };
}

}  // namespace psring::cli
