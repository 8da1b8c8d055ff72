#include <algorithm>
#include <fstream>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <sstream>
#include <string_view>
#include <tuple>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <psring/cli/commands.h>
#include <psring/cli/launch.h>
#include <psring/cli/options.h>
#include <psring/cli/summary.h>
#include <psring/cli/sweep.h>
#include <psring/common/base/error.h>
#include <psring/common/net/link_shaping.h>
#include <psring/worker/training.h>

namespace psring::cli {
namespace {

struct CompareFlags {
  JobFlags job;
  std::vector<std::string> strategies{"single", "ps"};
  std::string out;
  std::optional<Sweep> sweep;
};

/// A run of the comparison: a strategy at a point of the sweep.
struct Entry {
  std::string label;  ///< "ps n=4 s=1"
  JobOptions job;
};

struct Row {
  std::string label;
  JobOptions job;
  Summary summary;
  bool compared = false;  ///< with a reference
  bool equal = true;      ///< the final parameters, bit for bit
  bool ok() const { return (equal || !summary.same_bits) && summary.ok(); }
};

/// A run has failed, and all of it with it.
struct RunFailed {
  int status;
  std::string cause;
};

/// Is there a run of virtual workers that the job must end in the same bits as?
bool has_reference(const JobOptions& job, const worker::StrategyKind& kind) {
  return kind.exact && !kind.one_worker && job.aggregate == "mean";
}

/// That run: what changes the arithmetic stays, how bytes move does not.
JobOptions reference_of(JobOptions job, const worker::StrategyKind& kind) {
  const JobOptions defaults;
  job.virtual_workers = job.workers;
  job.workers = 1;
  job.servers = 0;
  job.strategy = "single";
  job.optimizer_on = "server";
  if (kind.at_owner && job.accumulate > 1) job.accumulate_at = "owner";
  job.trace = false;
  job.transport = defaults.transport;
  job.algorithm = defaults.algorithm;
  job.tuning.clear();
  job.streams = defaults.streams;
  job.bucket_bytes = defaults.bucket_bytes;
  job.overlap = defaults.overlap;
  job.bucket_order = defaults.bucket_order;
  job.prefetch = defaults.prefetch;
  job.reshard_after_forward = defaults.reshard_after_forward;
  job.server_threads = defaults.server_threads;
  job.encrypt = false;
  job.link.clear();
  return job;
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

std::string bytes_cell(const Summary& summary, std::string_view role, std::string_view direction) {
  for (const ByteCheck& check : summary.bytes)
    if (check.role == role && check.direction == direction)
      return fmt::format("{} {}", check.measured / summary.steps, !check.predicted ? "—" : check.ok() ? "✓" : "✗");
  return "";
}

std::string memory_cell(const Summary& summary, std::string_view role, std::uint64_t bytes) {
  const std::optional<bool> ok = summary.memory_ok(role);
  return fmt::format("{:.1f} {}", static_cast<double>(bytes) / 1048576.0, !ok ? "—" : *ok ? "✓" : "✗");
}

/// What a shaped link makes of the bytes: how long each role's take in a step, beside the step, and what bounds it.
std::string link_line(const Row& row) {
  if (row.job.link.empty()) return "";
  const net::LinkSpec link = net::parse_link(row.job.link);
  const auto busy_ms = [&](std::string_view role, std::size_t processes) {
    double most = 0;
    for (const ByteCheck& check : row.summary.bytes)
      if (check.role == role) most = std::max(most, static_cast<double>(check.measured));
    const double bytes = most / static_cast<double>(row.summary.steps * std::max<std::size_t>(1, processes));
    return 8e3 * bytes / link.bits_per_second;
  };
  const double worker = busy_ms("worker 0", 1);
  const double server = busy_ms("servers", row.job.servers);
  const double step = row.summary.step_seconds * 1e3;
  const double bound = std::max(worker, server);
  std::string text = fmt::format("  link: a worker's bytes take {:.1f} ms", worker);
  if (row.job.servers > 0) text += fmt::format(", a server's {:.1f} ms", server);
  text += fmt::format("; a step {:.1f} ms, {:+.0f} %", step, bound > 0 ? 100 * (step / bound - 1) : 0);
  const char* what = step > 2 * bound  ? "computing and delays"
                     : server > worker ? "the server's link"
                                       : "the worker's link";
  text += fmt::format(": bound by {}\n", what);
  if (row.summary.predicted_exposed_seconds)
    text += fmt::format("  exposed {:.1f} ms; predicted, from when its gradients were complete: {:.1f} ms\n",
                        row.summary.exposed_seconds * 1e3, *row.summary.predicted_exposed_seconds * 1e3);
  return text;
}

/// At most 100 columns with names of up to 12 letters.
std::string table(const std::vector<Row>& rows) {
  std::size_t width = std::string_view("  servers").size();
  for (const Row& row : rows) width = std::max(width, row.label.size());
  std::string text;
  const auto line = [&](const auto&... cells) {
    std::string added = fmt::format("{:<{}} ", std::get<0>(std::tie(cells...)), width);
    added += std::apply(
        [](const auto&, const auto&... rest) {
          return fmt::format("{:>10} {:>8} {:>8} {:>12} {:>12} {:>8} {:>8} {:>7} {:>5}", rest...);
        },
        std::tie(cells...));
    text += added.substr(0, added.find_last_not_of(' ') + 1) + "\n";
  };
  line("strategy", "samples/s", "ms/step", "exposed", "sent/step", "recv/step", "peak MiB", "loss", "acc", "equal");
  text += std::string(width + 88, '-') + "\n";
  for (const Row& row : rows) {
    const Summary& s = row.summary;
    line(row.label, fmt::format("{:.0f}", s.samples_per_second), fmt::format("{:.3f}", s.step_seconds * 1e3),
         fmt::format("{:.3f}", s.exposed_seconds * 1e3), bytes_cell(s, "worker 0", "sent"),
         bytes_cell(s, "worker 0", "received"), memory_cell(s, "worker", s.worker_peak_bytes),
         fmt::format("{:.4f}", s.final_loss), s.test_accuracy ? fmt::format("{:.4f}", *s.test_accuracy) : "—",
         !row.compared           ? "—"
         : row.equal             ? "="
         : row.summary.same_bits ? "✗"
                                 : "≈");
    if (s.server_peak_bytes > 0)
      line("  servers", "", "", "", bytes_cell(s, "servers", "sent"), bytes_cell(s, "servers", "received"),
           memory_cell(s, "server", s.server_peak_bytes), "", "", "");
    text += link_line(row);
    for (const ByteCheck& check : s.bytes)
      if (!check.ok())
        text += fmt::format("  ✗ {} {}: {} bytes in the run, predicted {}\n", check.role, check.direction,
                            check.measured, *check.predicted);
    for (const MemoryCheck& check : s.memory)
      if (!check.ok())
        text += fmt::format("  ✗ {} booked {} bytes for {}, predicted {}\n", check.role, check.peak, check.category,
                            *check.predicted);
  }
  return text +
         "exposed: ms of a step that wait for communication. sent, recv: payload bytes of worker 0, and of all\n"
         "servers together; ✓ as the formula predicts, ✗ not. peak: booked memory of the largest worker, the\n"
         "largest server; ✓ each category that is predicted is so. equal: = the final parameters have the\n"
         "bits of single --virtual-workers n, ≈ its arithmetic in another order.\n";
}

class Comparison {
 public:
  Comparison(CompareFlags& flags, const Invocation& invocation, SignalWatch& signals)
      : flags_(flags), invocation_(invocation), signals_(signals) {}

  /// Throws check_failed where a row is not as it should be, and RunFailed.
  void run() {
    const std::vector<Entry> entries = make_entries();
    out_ = make_run_folder(flags_.out, "compare");
    for (const Entry& entry : entries) check_no_run(out_ / folder_name(entry.label));
    for (const Entry& entry : entries) rows_.push_back(run_row(entry));
    fmt::print("\n{}", table(rows_));
    write_csv();
    fmt::print("run folder: {}\n", out_.string());
    std::fflush(stdout);
    if (!std::all_of(rows_.begin(), rows_.end(), [](const Row& row) { return row.ok(); }))
      fail(ErrorKind::check_failed, "bytes, memory or equality are not as predicted: see ✗ in the table");
  }

 private:
  static std::string folder_name(std::string label) {
    for (char& c : label)
      if (c == ':' || c == '/' || c == '=' || c == ',' || c == ' ') c = '-';
    return label;
  }

  std::unique_ptr<worker::StrategyKind> kind_of(const std::string& strategy) const {
    return invocation_.app.worker_registries().strategies.make(Spec::parse("--strategies", strategy));
  }

  /// All runs, strategy by strategy. What is wrong with the last is said before the first runs.
  std::vector<Entry> make_entries() {
    std::vector<Entry> entries;
    std::map<Sweep::Point, LeftOut> unused;  // by all strategies so far
    for (const std::string& strategy : flags_.strategies) {
      if (std::count(flags_.strategies.begin(), flags_.strategies.end(), strategy) > 1)
        fail(ErrorKind::usage, "--strategies: '{}' stands there twice", strategy);
      const auto kind = kind_of(strategy);
      std::set<std::string> idle;  // what is swept, but means nothing to this strategy
      flags_.sweep->for_each([&](const Sweep::Point& point) {
        LeftOut left_out;
        resolve(flags_.job, strategy, *kind, &left_out, true);
        LeftOut& unused_here = unused.try_emplace(point, left_out).first->second;
        std::erase_if(unused_here, [&](const auto& flag) { return !left_out.contains(flag.first); });
        for (const auto& [flag, line] : left_out) idle.insert(flag);
      });
      flags_.sweep->for_each([&](const Sweep::Point& point) {
        LeftOut left_out;
        Entry entry{label_of(strategy, point, idle), resolve(flags_.job, strategy, *kind, &left_out, true)};
        // A strategy without servers does the same at every number of them, one without buckets at all their sizes.
        const auto same = [&](const Entry& each) {
          return each.label == entry.label || to_json(each.job) == to_json(entry.job);
        };
        if (std::any_of(entries.begin(), entries.end(), same)) return;
        set_up(entry.job, invocation_.app);
        entries.push_back(std::move(entry));
      });
    }
    for (const auto& [point, left_out] : unused)
      if (!left_out.empty()) throw Error(ErrorKind::usage, left_out.begin()->second);
    return entries;
  }

  static std::string label_of(const std::string& strategy, const Sweep::Point& point,
                              const std::set<std::string>& idle) {
    std::string label = strategy;
    const auto add = [&](const std::string& name, const char* shown) {
      const auto at = point.find(name);
      if (at != point.end() && !idle.contains("--" + name)) label += fmt::format(" {}={}", shown, at->second);
    };
    add("workers", "n");
    add("servers", "s");
    for (const auto& [name, value] : point)
      if (name != "workers" && name != "servers") add(name, name.c_str());
    return label;
  }

  Row run_row(const Entry& entry) {
    const auto folder = out_ / folder_name(entry.label);
    Row row{.label = entry.label, .job = entry.job, .summary = run_job(entry.job, folder, entry.label)};
    if (!has_reference(entry.job, *kind_of(entry.job.strategy))) return row;
    row.compared = true;
    row.equal = same_bytes(folder / "model.safetensors", reference(entry.job) / "model.safetensors");
    return row;
  }

  Summary run_job(JobOptions job, const std::filesystem::path& folder, const std::string& label) {
    const worker::TrainSetup setup = set_up(job, invocation_.app);
    fill_in(job, invocation_.app, &setup);
    check_no_run(folder);
    std::filesystem::create_directories(folder);
    job.out = folder.string();
    const LaunchResult result = launch(job, {.out = folder, .label = label}, invocation_, signals_);
    if (result.status != 0) throw RunFailed{result.status, label + ": " + result.cause};
    join_traces(folder);
    return summarise(folder, job, invocation_);
  }

  /// Runs it once for all rows that need it.
  const std::filesystem::path& reference(const JobOptions& of) {
    const JobOptions job = reference_of(of, *kind_of(of.strategy));
    const std::string key = psring::to_json(job);
    const auto found = references_.find(key);
    if (found != references_.end()) return found->second;
    std::string label = fmt::format("single-{}-workers", job.virtual_workers);
    if (!references_.empty() && std::filesystem::exists(out_ / label))
      label += fmt::format("-{}", references_.size() + 1);
    run_job(job, out_ / label, label);
    return references_[key] = out_ / label;
  }

  void write_csv() const {
    std::ofstream out(out_ / "compare.csv");
    out << "strategy,run,worker,step,epoch,time_s,loss,lr,samples,step_s,compute_s,comm_s,exposed_comm_s,bytes_sent,"
           "bytes_received,staleness,test_loss,test_accuracy\n";
    for (const Row& row : rows_) append_metrics(out, row.label);
    if (!out.flush()) fail(ErrorKind::data, "{}: cannot write", (out_ / "compare.csv").string());
  }

  void append_metrics(std::ofstream& out, const std::string& label) const {
    static constexpr const char* kColumns[] = {"worker",         "step",      "epoch",          "time_s",
                                               "loss",           "lr",        "samples",        "step_s",
                                               "compute_s",      "comm_s",    "exposed_comm_s", "bytes_sent",
                                               "bytes_received", "staleness", "test_loss",      "test_accuracy"};
    const std::filesystem::path file = out_ / folder_name(label) / "metrics.jsonl";
    std::ifstream in(file);
    for (std::string line; std::getline(in, line);) {
      const auto json = nlohmann::json::parse(line, nullptr, false);
      if (json.is_discarded()) fail(ErrorKind::data, "{}: a line is not JSON", file.string());
      out << '"' << label << "\",1";
      for (const char* column : kColumns)
        out << ',' << (json.contains(column) && !json[column].is_null() ? json[column].dump() : "");
      out << '\n';
    }
  }

  CompareFlags& flags_;
  const Invocation& invocation_;
  SignalWatch& signals_;
  std::filesystem::path out_;
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
  flags->sweep.emplace(*command);
  command->footer("A list in an option is swept: --workers 2,4,8 --servers 1,n makes a row for each combination.");
  return [flags](const Invocation& invocation) {
    SignalWatch signals;
    try {
      Comparison(*flags, invocation, signals).run();
      return 0;
    } catch (const RunFailed& failed) {
      fmt::print(stderr, "{}{}\n", kErrorPrefix, failed.cause);
      return failed.status;
    }
  };
}

}  // namespace psring::cli
