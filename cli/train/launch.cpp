#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <random>
#include <system_error>

#include <fcntl.h>
#include <sys/stat.h>

#include <psring/cli/cluster/private_key.h>
#include <psring/cli/options/help.h>
#include <psring/cli/options/parts.h>
#include <psring/cli/train/ending.h>
#include <psring/cli/train/launch.h>
#include <psring/cli/train/live_view.h>
#include <psring/cli/train/progress.h>
#include <psring/cli/train/summary.h>
#include <psring/common/base/system/fd.h>
#include <psring/common/base/system/file.h>
#include <psring/common/base/system/standard_files.h>
#include <psring/common/base/temporary_folder.h>
#include <psring/common/base/text/error.h>
#include <psring/common/base/text/text.h>
#include <psring/common/net/host.h>
#include <psring/common/net/key.h>
#include <psring/common/proc/agent.h>
#include <psring/common/proc/coordinator/coordinator_process.h>
#include <psring/common/proc/coordinator/coordinator_service.h>
#include <psring/common/proc/local_cluster.h>

namespace psring::cli {
namespace {

constexpr const char* kSelf = "/proc/self/exe";
constexpr const char* kJobFile = "job.json";  // a folder with this file holds a run

/// The job's coordinator, a process of this host. Restarts the coordinator if a signal ends it or if it is silent for
/// too long, as often as the job allows.
class CoordinatorKeeper {
 public:
  /// If the coordinator does not start, no run has begun, and the folder can be used again.
  CoordinatorKeeper(const JobOptions& job, const LaunchOptions& options, const std::filesystem::path& key,
                    std::vector<int> inherited, const std::optional<Progress>& progress)
      : timeout_(from_seconds(job.heartbeat_timeout)),
        join_timeout_(from_seconds(job.join_timeout)),
        restarts_left_(job.max_restarts),
        inherited_(std::move(inherited)),
        cluster_(options.out / "logs", clock_, options.next_part),
        argv_{std::filesystem::read_symlink(kSelf).string(),
              "coordinator",
              "--job",
              (options.out / kJobFile).string(),
              "--key",
              key.string(),
              "--out",
              options.out.string(),
              "--nodes",
              std::to_string(options.nodes)} {
    if (options.same_build) argv_.emplace_back("--same-build");
    if (options.more) argv_.emplace_back("--more");
    if (progress) {
      argv_.insert(argv_.end(), {"--progress-fd", std::to_string(progress->write_end())});
      inherited_.push_back(progress->write_end());
    }
    try {
      start(options.listen);
    } catch (const Error&) {
      if (options.next_part) throw;
      std::error_code ignored;
      for (const char* name : {kJobFile, kManifestFile}) std::filesystem::remove(options.out / name, ignored);
      throw;
    }
  }

  const std::string& endpoint() const { return endpoint_; }

  /// Implements AgentOptions::tend.
  std::vector<int> tend(bool silent) {
    if (exit_) return {};
    if (silent && restarts_left_ > 0 && clock_.now() - started_ > timeout_) cluster_.kill("coordinator");
    exit_ = cluster_.next_exit(clock_.now());
    if (exit_ && exit_->signal != 0 && restarts_left_ > 0) {
      --restarts_left_;
      out::print("the coordinator was ended by signal {} ({}): started again\n", exit_->signal,
                 ::strsignal(exit_->signal));
      std::fflush(stdout);
      exit_.reset();
      argv_.push_back("--second");
      start(endpoint_);
    }
    return cluster_.fds();
  }

  /// Implements AgentOptions::while_joining: throws if no answer can come any more.
  void await_answer() {
    tend(true);
    const Nanoseconds quiet = clock_.now() - started_;
    if (exit_ && exit_->signal == 0) fail(kind_of_status(exit_->status), "{}", message_of(*exit_));
    gave_up_ = exit_ || quiet > timeout_;
    if (gave_up_)
      fail(ErrorKind::peer_lost, "nothing from the coordinator ({}) for {:.1f} s", endpoint_, seconds(quiet));
  }

  /// Waits up to `patience` for the coordinator to end by itself, and returns its exit.
  std::optional<ProcessExit> end(Nanoseconds patience) {
    if (gave_up_) patience = Nanoseconds(0);
    if (!exit_) exit_ = cluster_.next_exit(clock_.now() + patience);
    if (!exit_) cluster_.terminate_all(std::min<Nanoseconds>(patience, std::chrono::seconds(1)));
    return exit_;
  }

 private:
  void start(const std::string& listen) {
    std::vector<std::string> argv = argv_;
    argv.insert(argv.end(), {"--listen", listen});
    for (;; --restarts_left_) {
      started_ = clock_.now();
      try {
        endpoint_ = start_coordinator(cluster_, argv, started_ + join_timeout_, clock_, inherited_);
        started_ = clock_.now();
        return;
      } catch (const Error& error) {
        if (error.kind() != ErrorKind::peer_lost || restarts_left_ == 0) throw;
      }
    }
  }

  const SystemClock clock_;
  const Nanoseconds timeout_;
  const Nanoseconds join_timeout_;
  std::size_t restarts_left_;
  std::vector<int> inherited_;
  LocalCluster cluster_;
  std::vector<std::string> argv_;
  std::string endpoint_;
  Moment started_;
  std::optional<ProcessExit> exit_;
  bool gave_up_ = false;  ///< do not wait for it any more
};

std::vector<int> tend(CoordinatorKeeper& coordinator, LiveView* live, bool silent) {
  std::vector<int> fds = coordinator.tend(silent);
  if (live == nullptr) return fds;
  const std::vector<int> more = live->tend();
  fds.insert(fds.end(), more.begin(), more.end());
  return fds;
}

/// The launch as psring resume repeats it: a job of tasks is repeated by tasks, or on one host.
LaunchRecord launch_record(const LaunchOptions& options) {
  LaunchRecord record{.nodes = options.nodes, .listen = options.listen, .same_build = options.same_build};
  if (options.tell_tasks) record = {};
  record.key_file = options.key_file.value_or("").string();
  if (options.slurm_job) record.slurm_job = options.slurm_job->id;
  return record;
}

void print_awaited(const LaunchOptions& options, const std::string& endpoint) {
  const std::size_t others = options.nodes - 1;
  if (options.tell_tasks)
    out::print("coordinator at {}: waiting for {}\n", endpoint, count_of(others, "more task"));
  else
    out::print("coordinator at {}: waiting for the agents of {}\n", endpoint, count_of(others, "more host"));
}

}  // namespace

void add_same_build(const Flags& command, bool& same_build) {
  command
      .add_switch("--same-build", same_build, "refuse processes of another build of psring (a warning tells of them)")
      .set_group(kSeldomUsed);
}

LaunchResult launch(const JobOptions& wanted, const LaunchOptions& options, const Invocation& invocation,
                    SignalWatch& signals) {
  signals.hold();
  const SystemClock clock;
  std::optional<PrivateKey> private_key;
  std::vector<int> inherited;
  if (!options.key_file) inherited.push_back(private_key.emplace().fd());
  const std::filesystem::path key = options.key_file.value_or(private_key ? private_key->file() : "");

  const std::string self = std::filesystem::read_symlink(kSelf).string();
  JobOptions job = wanted;
  if (!options.next_part) job.run_id = new_run_id();
  const std::unique_ptr<FolderLock> lock = options.next_part ? nullptr : lock_run(options.out);
  begin_run(options.out, job, invocation, options.next_part);
  std::optional<Progress> progress;
  if (options.show_progress) progress.emplace(options.label, invocation.output);
  CoordinatorKeeper coordinator(job, options, key, inherited, progress);
  record_launch(options.out, launch_record(options));
  if (options.tell_tasks) options.tell_tasks(coordinator.endpoint(), net::JobKey::load(key));
  if (progress) progress->started();
  if (options.nodes > 1 && !options.returning) print_awaited(options, coordinator.endpoint());
  std::fflush(stdout);

  const AgentResult result = run_agent({.endpoint = coordinator.endpoint(),
                                        .key_file = key,
                                        .command = {self},
                                        .inherited = inherited,
                                        .log_folder = options.out / "logs",
                                        .keep_logs = options.next_part,
                                        .host_id = net::host_id(),
                                        .rank = 0,
                                        .join_timeout = from_seconds(job.join_timeout),
                                        .patient = job.max_restarts > 0,
                                        .while_joining = [&] { coordinator.await_answer(); },
                                        .abort_grace = from_seconds(std::min(2.0, job.heartbeat_timeout / 2)),
                                        .on_notice =
                                            [](const std::string& line) {
                                              out::print("{}\n", line);
                                              std::fflush(stdout);
                                            },
                                        .tend = [&](bool silent) { return tend(coordinator, options.live, silent); }},
                                       signals, clock);
  // The coordinator ends by itself once its members have left; its files are then complete. If the job has failed, the
  // coordinator may be the cause.
  const bool ended_well = !result.failed;
  const auto patience = std::chrono::seconds(result.coordinator_was_silent ? 0 : ended_well ? 15 : 3);
  const auto exit = coordinator.end(patience);
  if (result.status != 0) remove_unfinished(options.out, job);
  const bool not_needed = ended_well && job.max_restarts > 0;  // its work is done
  if (exit && exit->signal != 0 && result.interrupted.signal == 0 && !not_needed) {
    const std::string cause =
        fmt::format("the coordinator was ended by signal {} ({})", exit->signal, ::strsignal(exit->signal));
    return {.status = exit_status(ErrorKind::peer_lost),
            .cause = cause + ending(options.out, job, {}, "coordinator", options.resumable),
            .signal = result.signal,
            .endpoint = coordinator.endpoint()};
  }
  const bool agents_stay = options.more && options.nodes > 1 && result.interrupted.signal == 0 &&
                           (result.status == 0 || result.status == exit_status(ErrorKind::data));
  if (result.status == 0)
    return {.signal = result.signal, .endpoint = coordinator.endpoint(), .agents_stay = agents_stay};
  std::string log;
  if (result.failed && result.culprit.role != net::Role::coordinator)
    log = fmt::format("{}-{}", to_string(result.culprit.role), result.culprit.rank);
  // The evaluation after the last step was interrupted: no step is left to continue with.
  const bool complete = result.interrupted.signal != 0 && result.interrupted.last >= job.steps;
  // No step begins before the launcher's own agent has joined.
  const bool before_first_step = result.interrupted.signal != 0 && !result.joined;
  return {.status = result.status,
          .cause = (before_first_step ? "interrupted before the first step" : result.cause) +
                   ending(options.out, job, result.interrupted, log, options.resumable && !complete),
          .interrupted = result.interrupted,
          .signal = result.signal,
          .endpoint = coordinator.endpoint(),
          .agents_stay = agents_stay};
}

void end_agents(const std::string& endpoint, const net::JobKey& key, std::size_t others, SignalWatch& signals) {
  const SystemClock clock;
  const TemporaryFolder folder("psring-end");
  // A job without roles: it ends well as soon as all of its agents have joined.
  net::CoordinatorService service({.plan = {.workers = 0,
                                            .agents = static_cast<std::uint32_t>(others),
                                            .build = build_id(),
                                            .join_timeout = std::chrono::seconds(10)},
                                   .listen = endpoint,
                                   .run_folder = folder.path()},
                                  key, clock);
  service.run({.fd = signals.fd(), .take = [&] { return signals.take(); }});
}

std::string new_run_id() {
  std::random_device source;
  return fmt::format("{:08x}{:08x}", source(), source());
}

void begin_run(const std::filesystem::path& folder, const JobOptions& job, const Invocation& invocation,
               bool next_part) {
  const std::string file = folder / kJobFile;
  if (!next_part) {
    const Fd made(::open(file.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
    if (!made && errno == EEXIST) check_no_run(folder);
    if (!made) fail(ErrorKind::data, "{}: cannot write: {}", file, std::strerror(errno));
  }
  try {
    write_whole(file, to_json(job) + "\n");
    write_manifest(folder, job, invocation);
  } catch (const Error&) {
    std::error_code ignored;
    if (!next_part)  // no run has begun here
      for (const char* name : {kJobFile, kManifestFile}) std::filesystem::remove(folder / name, ignored);
    throw;
  }
}

std::unique_ptr<FolderLock> lock_run(const std::filesystem::path& folder) {
  auto lock = std::make_unique<FolderLock>(folder.string(), Deadline(SystemClock().now()));
  if (lock->outcome() == FolderLock::Outcome::in_use)
    fail(ErrorKind::usage, "{}: is under way: another process runs this job", folder.string());
  return lock;
}

void check_no_run(const std::filesystem::path& folder) {
  std::error_code ignored;
  if (!std::filesystem::exists(folder / kJobFile, ignored)) return;
  // Each role reports when it has finished: without worker 0's report the run failed or is still in progress.
  const bool is_done = std::filesystem::exists(folder / "reports" / "worker-0.json", ignored);
  fail(ErrorKind::usage, "--out {}: holds a run already{}; remove it or choose another --out", folder.string(),
       is_done ? "" : ", which has failed or not ended");
}

std::filesystem::path make_run_folder(const std::string& wanted, const std::string& name) {
  namespace fs = std::filesystem;
  const fs::path runs = "runs";
  std::error_code error;
  fs::path folder = wanted.empty() ? runs : fs::path(wanted);
  fs::create_directories(folder, error);
  // Only one process can create a folder, so a new folder belongs to this run alone.
  for (int number = 1; wanted.empty() && !error; ++number) {
    folder = runs / fmt::format("{}-{:03}", name, number);
    if (fs::create_directory(folder, error)) break;
    if (error && fs::exists(folder)) error.clear();  // a file has this name
  }
  if (error && wanted.empty())
    fail(ErrorKind::data, "{}: cannot create the run's folder: {}; choose another with --out DIR", folder.string(),
         error.message());
  if (error) fail(ErrorKind::data, "--out {}: {}", folder.string(), error.message());
  check_no_run(folder);
  return fs::canonical(folder);
}

}  // namespace psring::cli
