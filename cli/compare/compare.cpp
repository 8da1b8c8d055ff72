#include <algorithm>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>

#include <psring/cli/commands.h>
#include <psring/cli/compare/compare_files.h>
#include <psring/cli/compare/compare_sections.h>
#include <psring/cli/compare/compare_table.h>
#include <psring/cli/compare/comparison.h>
#include <psring/cli/compare/predicted_step.h>
#include <psring/cli/options/job_flags.h>
#include <psring/cli/options/parts.h>
#include <psring/cli/plan/bandwidth.h>
#include <psring/cli/report/report_file.h>
#include <psring/cli/train/launch.h>
#include <psring/cli/train/launch_checks.h>
#include <psring/cli/train/other_load.h>
#include <psring/cli/train/set_up.h>
#include <psring/cli/train/tasks.h>
#include <psring/common/base/system/processors.h>
#include <psring/common/base/system/standard_files.h>
#include <psring/common/base/text/error.h>
#include <psring/common/net/address.h>
#include <psring/common/net/key.h>
#include <psring/common/proc/options/check.h>
#include <psring/view/trace_file.h>

namespace psring::cli {
namespace {

constexpr std::size_t kMostRuns = 1000;

struct CompareFlags {
  options::Given job;  ///< the options of the table
  std::vector<std::string> strategies{"single", "ps"};
  std::string out;
  std::size_t runs = 1;
  std::string predict_link = "10gbit,20us";
  std::size_t nodes = 1;
  std::string listen = LaunchOptions().listen;
  std::string key;
  bool same_build = false;
  bool wide = false;
  std::string launcher = "auto";
  std::optional<Sweep> sweep;
};

/// A run failed, and with it the comparison. If the model is no longer finite, only the run's row is left out.
struct RunFailed {
  int status;
  std::string cause;
};

class Comparison {
 public:
  Comparison(CompareFlags& flags, const Invocation& invocation, SignalWatch& signals)
      : flags_(flags), invocation_(invocation), signals_(signals) {}

  /// Throws check_failed if a row differs from its prediction, and RunFailed if a run failed. If other rows are left,
  /// their report is printed first.
  void run() {
    options::check_count("--runs", flags_.runs, kMostRuns);
    if (flags_.job.contains("checkpoint-dir"))
      fail(ErrorKind::usage, "--checkpoint-dir: each run of a comparison has its own, in its run folder");
    if (flags_.job.contains("live"))
      fail(ErrorKind::usage, "--live: a comparison makes one run after another; psring watch RUN shows one of them");
    options::check_count("--nodes", flags_.nodes, options::kMostProcesses);
    if (flags_.nodes > 1 && flags_.key.empty())
      fail(ErrorKind::usage, "--nodes {}: give the job's --key to all hosts", flags_.nodes);
    if (!flags_.key.empty()) key_.emplace(net::JobKey::load(flags_.key));
    const std::vector<PredictLink> links = parse_predict_links(flags_.predict_link);
    const bool loopback = net::is_loopback(net::resolve_endpoint("--listen", flags_.listen, 0));
    for (Entry& entry : make_entries(flags_.job, flags_.strategies, *flags_.sweep, invocation_.app, loopback))
      rows_.push_back({.entry = std::move(entry), .runs = {}, .processors = processors_, .hosts = flags_.nodes});
    for (const Row& row : rows_) check_host(row.entry.job, flags_.nodes, 1, flags_.listen);
    out_ = make_run_folder(flags_.out, "compare");
    const std::unique_ptr<FolderLock> lock = lock_run(out_);
    continues_ = is_unfinished_comparison(out_);
    for (const Row& row : rows_)
      for (std::size_t r = 0; r < flags_.runs && !continues_; ++r) check_no_run(folder_of(row, r));
    write_files(false);
    predict(links);
    try {
      make_runs();
    } catch (const RunFailed&) {
      std::erase_if(rows_, [](const Row& row) { return row.runs.empty(); });
      write_files(false);
      if (!rows_.empty()) out::print("\n{}incomplete: a run ended early\n", main_table(rows_).plain(kTableColumns));
      std::fflush(stdout);
      throw;
    }
    report();
    if (!ended_.empty()) throw ended_.front();
    if (!std::all_of(rows_.begin(), rows_.end(), [](const Row& row) { return row.ok(); }))
      fail(ErrorKind::check_failed, "bytes, memory or equality are not as predicted: see ✗ in the table");
  }

 private:
  /// Ends the other hosts' agents after the last run, however that ends.
  class StayingAgents {
   public:
    explicit StayingAgents(const Comparison& table) : table_(table) {}
    ~StayingAgents() {
      try {
        if (table_.agents_stay_) end_agents(table_.endpoint_, *table_.key_, table_.flags_.nodes - 1, table_.signals_);
      } catch (const Error&) {  // they end by themselves when no coordinator answers them
      }
    }
    StayingAgents(const StayingAgents&) = delete;
    StayingAgents& operator=(const StayingAgents&) = delete;

   private:
    const Comparison& table_;
  };

  std::filesystem::path folder_of(const Row& row, std::size_t run) const {
    return out_ / run_folder_of(row.entry.label, run, flags_.runs);
  }

  /// Measures before the first run, so that no process of a row takes processors from the measurement.
  void predict(const std::vector<PredictLink>& links) {
    const std::string encrypt = options::text_of(flags_.job, "encrypt");
    StepPredictor predictor(links, encrypt == "on" || encrypt == "off", invocation_.app);
    predictor.measure(rows_);
    for (Row& row : rows_) row.predicted = predictor.predict(row.entry);
    if (const std::string measured = predictor.measured(); !measured.empty())
      out::print("{}", wrapped("computing, measured alone: " + measured, kTableColumns, 2));
    std::fflush(stdout);
  }

  /// Makes the runs in turn, forwards and backwards, so that a drift over time favours no row.
  void make_runs() {
    const StayingAgents staying(*this);
    std::set<std::size_t> left_out;
    for (std::size_t r = 0; r < flags_.runs; ++r) {
      const std::string number = flags_.runs > 1 ? fmt::format(" run {}", r + 1) : "";
      for (std::size_t i = 0; i < rows_.size(); ++i) {
        const std::size_t turn = r % 2 == 0 ? i : rows_.size() - 1 - i;
        if (left_out.contains(turn)) continue;
        Row& row = rows_[turn];
        const std::filesystem::path folder = folder_of(row, r);
        const bool before = continues_ && std::filesystem::exists(folder / "summary.json");
        const OtherLoad others;
        try {
          row.runs.push_back(run_job(row.entry.job, folder, row.entry.label + number));
        } catch (const RunFailed& failed) {
          if (failed.status != exit_status(ErrorKind::data)) throw;
          left_out.insert(turn);
          ended_.push_back(failed);
        }
        row.others.push_back(before ? other_load_of_run(folder) : others.processors());
        if (!before && !left_out.contains(turn)) record_other_load(folder, row.others.back());
        write_files(false);  // finished rows stay, however this process ends
      }
    }
    for (auto turn = left_out.rbegin(); turn != left_out.rend(); ++turn)
      rows_.erase(rows_.begin() + static_cast<std::ptrdiff_t>(*turn));
    if (rows_.empty()) throw ended_.front();
    for (Row& row : rows_)
      if (row.entry.exact()) compare(row);
    for (Row& row : rows_)
      if (!row.entry.exact()) compare(row);
    for (Row& row : rows_) {
      check_not_interrupted(row.entry.label, "the bandwidth of memory was measured");
      measure_memory(row);
    }
  }

  /// Compares a row with its reference. A strategy that is not exact is compared with a reference that other rows need;
  /// no reference is run for it alone.
  void compare(Row& row) {
    const std::optional<JobOptions> job = reference_of(row.entry);
    if (!row.entry.exact()) row.equality = Equality::inexact;
    if (!job || (!row.entry.exact() && !references_.contains(psring::to_json(*job)))) return;
    const auto file = reference(*job) / "model.safetensors";
    bool equal = true;
    row.largest_difference = 0;
    for (std::size_t r = 0; r < row.runs.size(); ++r) {
      const auto own = folder_of(row, r) / "model.safetensors";
      if (same_bytes(own, file)) continue;
      equal = false;
      row.largest_difference = std::max(*row.largest_difference, largest_difference(own, file));
    }
    if (!row.entry.exact()) return;
    row.equality = equal ? Equality::same_bits : row.runs.front().same_bits ? Equality::differs : Equality::rounding;
  }

  /// Returns the folder of the reference run, which is made once for all rows that need it.
  const std::filesystem::path& reference(const JobOptions& job) {
    const std::string key = psring::to_json(job);
    const auto found = references_.find(key);
    if (found != references_.end()) return found->second;
    std::string name = fmt::format("single-{}-workers", job.virtual_workers);
    if (!continues_ && std::filesystem::exists(out_ / name)) name += fmt::format("-{}", references_.size() + 1);
    run_job(job, out_ / name, fmt::format("checking bits: single with {} virtual workers", job.virtual_workers));
    return references_[key] = out_ / name;
  }

  Summary run_job(JobOptions job, const std::filesystem::path& folder, const std::string& label) {
    worker::TrainSetup setup = set_up(job, invocation_.app);
    check_memory(setup, flags_.nodes, 1);
    fill_in(job, invocation_.app, &setup);
    job.out = folder.string();
    if (auto before = run_before(job, folder, label)) return *before;
    check_not_interrupted(label, "it began");
    check_no_run(folder);
    std::filesystem::create_directories(folder);
    const LaunchResult result = launch_row(job, folder, label);
    if (signal_ == 0) signal_ = result.signal;
    if (result.status != 0)
      throw RunFailed{result.status,
                      label + ": " + result.cause + (result.interrupted.signal != 0 ? continue_hint() : "")};
    if (job.trace) view::write_trace(folder);
    return summarise(folder, job, invocation_);
  }

  LaunchResult launch_row(const JobOptions& job, const std::filesystem::path& folder, const std::string& label) {
    LaunchOptions options{.out = folder,
                          .nodes = flags_.nodes,
                          .listen = endpoint_.empty() ? flags_.listen : endpoint_,
                          .more = flags_.nodes > 1,
                          .returning = std::exchange(agents_stay_, false),
                          .label = label,
                          .resumable = false,
                          .same_build = flags_.same_build};
    if (key_) options.key_file = std::filesystem::absolute(flags_.key);
    LaunchResult result = launch(job, options, invocation_, signals_);
    agents_stay_ = result.agents_stay;
    if (flags_.nodes > 1) endpoint_ = result.endpoint;
    return result;
  }

  /// A signal that came too late to end a run early ends the comparison before what is `next`.
  void check_not_interrupted(const std::string& label, const char* next) {
    if (const auto signal = signals_.take(); signal && signal_ == 0) signal_ = *signal;
    if (signal_ != 0)
      throw RunFailed{interrupted_status(signal_),
                      fmt::format("{}: interrupted before {}{}", label, next, continue_hint())};
  }

  std::string continue_hint() const {
    return "; to go on, repeat the same command" +
           (flags_.out.empty() ? " with --out " + out_.string() : std::string());
  }

  /// Measures the bandwidth of memory, over as many bytes as all processes of the row hold together, by as many threads
  /// as can run at once.
  void measure_memory(Row& row) {
    std::size_t booked = 0;
    for (const MemoryCheck& check : row.runs.front().memory) booked += check.peak;
    const std::size_t threads = std::clamp<std::size_t>(row.step().threads, 1, processors_);
    row.memory_bytes_per_s =
        bandwidths_.try_emplace(threads, threads).first->second.bytes_per_second(booked / flags_.nodes);
  }

  /// Writes the files of the rows that have a run.
  void write_files(bool ended) const {
    std::vector<Row> rows;
    std::copy_if(rows_.begin(), rows_.end(), std::back_inserter(rows),
                 [](const Row& row) { return !row.runs.empty(); });
    write_metrics_csv(out_, rows, flags_.runs);
    write_comparison(out_, invocation_.words, rows, ended);
  }

  /// Returns the summary of a run that an earlier call of this comparison finished: such a run is not repeated. An
  /// unfinished run is set aside. So is a run that psring resume continued, because it was made in another way than the
  /// other rows.
  std::optional<Summary> run_before(const JobOptions& job, const std::filesystem::path& folder,
                                    const std::string& label) {
    if (!continues_ || !std::filesystem::exists(folder / kManifestFile)) return std::nullopt;
    if (std::filesystem::exists(folder / "parts")) return set_aside(folder);
    const JobOptions was = job_of_run(folder);
    JobOptions same = job;
    same.run_id = was.run_id;
    same.out = was.out;
    if (psring::to_json(same) != psring::to_json(was))
      fail(ErrorKind::usage, "--out {}: its run {} was made with other options; choose another --out", out_.string(),
           label);
    if (std::filesystem::exists(folder / "summary.json")) {
      out::print("{}: was finished before\n", label);
      return summarise(folder, was, invocation_);
    }
    return set_aside(folder);
  }

  static std::nullopt_t set_aside(const std::filesystem::path& folder) {
    std::filesystem::path aside;
    for (int number = 1; aside.empty() || std::filesystem::exists(aside); ++number)
      aside = fmt::format("{}.unfinished-{}", folder.string(), number);
    std::filesystem::rename(folder, aside);
    return std::nullopt;
  }

  void report() const {
    write_files(true);
    out::print("\n{}{}", main_table(rows_).plain(kTableColumns), legend(rows_));
    for (const std::string& line : failures(rows_)) out::print("{}", wrapped(line, kTableColumns, 2));
    for (const RunFailed& failed : ended_) out::print("{}", wrapped("ended early: " + failed.cause, kTableColumns, 2));
    out::print("\nWhat bounds each, and what to try next (times of a step are medians):\n");
    for (const std::string& line : bound_lines(rows_)) out::print("{}", wrapped(line, kTableColumns, 2));
    if (flags_.wide)
      for (const Section& section : wide_sections(rows_)) out::print("\n{}\n{}", section.title, section.table.plain());
    out::print("\nrun folder: {}\n{}", out_.string(), write_report({out_}, out_ / "report.html", invocation_.app));
    std::fflush(stdout);
  }

  CompareFlags& flags_;
  const Invocation& invocation_;
  SignalWatch& signals_;
  const std::size_t processors_ = usable_processors();
  std::filesystem::path out_;
  std::optional<net::JobKey> key_;  ///< of the jobs on several hosts
  std::string endpoint_;            ///< at which all rows' coordinators listen, one after the other
  bool agents_stay_ = false;        ///< other hosts' agents wait there for the next row
  int signal_ = 0;                  ///< the first signal that was taken; 0: none
  bool continues_ = false;          ///< continues the comparison that an earlier call left unfinished
  std::vector<Row> rows_;
  std::vector<RunFailed> ended_;  ///< the rows that are left out
  std::map<std::string, std::filesystem::path> references_;
  std::map<std::size_t, MemoryBandwidth> bandwidths_;  ///< by threads
};

}  // namespace

Command add_compare(const Flags& program) {
  const Flags command =
      program.add_command("compare", "train one model with several strategies, and show them side by side");
  auto flags = std::make_shared<CompareFlags>();  // shared: the parser fills it in, the command reads it
  command
      .add("--strategies", flags->strategies,
           "strategies to compare, separated by commas; pp:2:1f1b+zero1 is zero1 with --pipeline 2")
      .separate_by(',')
      .show_default();
  command.add("--out", flags->out, "run folder (a new folder in runs/)").show_value("DIR");
  command.add("--runs", flags->runs, "runs of each row, in turns; the table shows medians and spread").show_default();
  command
      .add(
          "--predict-link", flags->predict_link,
          "RATE[,DELAY] of a cluster's links, for which a column predicts each row's step; two between commas; or none")
      .show_default();
  command
      .add("--nodes", flags->nodes, "number of hosts that make each run: this host, and the hosts whose agents connect")
      .show_default();
  command.add("--listen", flags->listen, "ADDR:PORT of the coordinators; port 0: any free port")
      .show_default("127.0.0.1:0");
  command.add("--key", flags->key, "key file of the jobs (on one host: a new key for each)").show_value("FILE");
  add_same_build(command, flags->same_build);
  command.add_switch("--wide", flags->wide, "print all measurements of every process below the table");
  add_launcher_flag(command, flags->launcher);
  add_job_flags(command, flags->job);
  command.flag("--live").hide();
  flags->sweep.emplace(command);
  command.add_footer(
      "A comma-separated list in an option runs every combination, one row of the\n"
      "table each: --workers 2,4,8 --servers 1,n. n stands for the row's number of\n"
      "workers. --link 1gbit,0.2ms,10gbit has two links, the first with a delay.\n");
  return [flags](const Invocation& invocation) {
    refuse_tasks("compare", flags->launcher);
    SignalWatch signals(SignalWatch::Effect::ends_process);
    try {
      Comparison(*flags, invocation, signals).run();
      return 0;
    } catch (const RunFailed& failed) {
      invocation.output.settle();
      out::error(failed.cause);
      return failed.status;
    }
  };
}

}  // namespace psring::cli
