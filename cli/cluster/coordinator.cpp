#include <memory>
#include <optional>

#include <fcntl.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <psring/cli/commands.h>
#include <psring/cli/options/job_flags.h>
#include <psring/cli/options/resolve.h>
#include <psring/cli/train/ending.h>
#include <psring/cli/train/launch.h>
#include <psring/cli/train/live_view.h>
#include <psring/cli/train/set_up.h>
#include <psring/cli/train/summary_text.h>
#include <psring/common/base/consistency.h>
#include <psring/common/base/system/file.h>
#include <psring/common/base/system/standard_files.h>
#include <psring/common/base/text/error.h>
#include <psring/common/base/text/json.h>
#include <psring/common/base/text/text.h>
#include <psring/common/net/address.h>
#include <psring/common/proc/coordinator/coordinator_process.h>
#include <psring/common/proc/coordinator/coordinator_service.h>
#include <psring/common/proc/environment.h>
#include <psring/common/proc/fault.h>
#include <psring/common/proc/options/check.h>
#include <psring/optim/checkpoint/checkpoint.h>
#include <psring/optim/checkpoint/folder.h>
#include <psring/view/tensorboard/writer.h>
#include <psring/view/trace_file.h>
#include <psring/worker/training.h>

namespace psring::cli {
namespace {

constexpr const char* kAnewFile = "job-anew.json";  ///< the job of the last new beginning

struct CoordinatorFlags {
  options::Given job;  ///< the options of the table
  std::string strategy = "ps";
  std::string job_file;
  std::string listen = "127.0.0.1:0";
  std::string key;
  std::string out;
  std::size_t nodes = 0;
  int endpoint_fd = -1;
  int progress_fd = -1;
  bool second = false;
  bool same_build = false;
  bool more = false;
};

JobOptions job_of(const CoordinatorFlags& flags, const App& app) {
  if (!flags.job_file.empty()) {
    const std::filesystem::path anew = std::filesystem::path(flags.out) / kAnewFile;
    try {
      return job_from_json(read_whole(flags.second && std::filesystem::exists(anew) ? anew.string() : flags.job_file));
    } catch (const Error& error) {
      throw error.with_context("--job");
    }
  }
  options::Given given = flags.job;
  if (!given.contains("workers"))
    if (const auto size = environment_number("WORLD_SIZE")) given["workers"] = std::to_string(*size);
  const auto kind = worker::make_strategy_kind(app.worker_registries(), "--strategy", flags.strategy, model_of(given));
  const bool loopback = net::is_loopback(net::resolve_endpoint("--listen", flags.listen, 0));
  JobOptions job = resolve(given, flags.strategy, *kind, nullptr, loopback);
  // With --steps the data is not needed here: the workers may be a user's programs with another model.
  check_servers_part(job, app);
  std::optional<worker::TrainSetup> setup;
  if (!job.steps) setup.emplace(job, app.worker_registries(), app.optimizers());
  fill_in(job, app, setup ? &*setup : nullptr);
  return job;
}

/// Writes a line of progress without waiting: the line is dropped if the pipe is full. A pipe accepts a line as a whole
/// or not at all.
void write_line(int fd, const std::string& line) {
  std::string text = line + "\n";
  if (text.size() > PIPE_BUF) return;
  [[maybe_unused]] const ssize_t written = ::write(fd, text.data(), text.size());  // the reader may be gone
}

/// Returns the job for a new beginning: from the newest complete checkpoint, or from its first beginning. Readers of
/// the checkpoint verify it.
net::RecoveryPlan::Anew begin_anew(JobOptions job, std::size_t workers, const std::filesystem::path& file) {
  const std::string folder = job.checkpoint_folder();
  if (!folder.empty())
    if (const auto saved = optim::CheckpointFolder(folder, job.run_id).newest_own())
      job.continue_from(saved->path.string());
  std::uint64_t step = 0;
  try {
    if (!job.resume.empty()) step = optim::Checkpoint(job.resume).step();
  } catch (const Error& error) {
    throw error.with_context("no checkpoint is left from which the job could begin again");
  }
  // A second coordinator reads this file, and counts the remaining workers by itself.
  write_whole(file.string(), to_json(job) + "\n");
  job.workers = workers;
  return {to_json(job), step};
}

/// Reads the losses that the coordinator before this one recorded.
void read_losses(const std::filesystem::path& folder, net::RecoveryPlan& plan) {
  LineReader lines((folder / "recoveries.jsonl").string(), LineReader::IfMissing::no_lines);
  for (std::string line; lines.next(line);) {
    const std::optional<Json> parsed = Json::try_parse(line);
    if (!parsed) continue;  // the writer died in the middle of the line
    plan.restarts = parsed->value("restarts", plan.restarts);
    if (parsed->contains("lost")) plan.recovering = true;
    if (parsed->contains("seconds")) plan.recovering = false;
    if (!parsed->contains("given_up")) continue;
    const Json given_up = parsed->at("given_up");
    for (const net::Role role : {net::Role::worker, net::Role::agent})
      for (const Json& rank : given_up.value(to_string(role), Json::array()))
        plan.given_up.insert({role, rank.get<std::uint32_t>()});
  }
}

/// `can_return`: the coordinator is started again if it is lost.
net::RecoveryPlan recovery_of(const JobOptions& job, bool can_return, bool second) {
  using Keepers = net::RecoveryPlan::Keepers;
  net::RecoveryPlan plan{
      .max_restarts = static_cast<std::uint32_t>(job.max_restarts),
      .min_workers = static_cast<std::uint32_t>(job.min_workers),
      .keepers = job.recovery == "servers"   ? Keepers::servers
                 : job.recovery == "workers" ? Keepers::workers
                 : job.recovery == "both"    ? Keepers::both
                                             : Keepers::nobody,
      .begin_anew = [job](std::uint32_t workers) { return begin_anew(job, workers, job.out + "/" + kAnewFile); },
      .beginning_exists =
          [](const std::string& text) {
            const std::string resume = job_from_json(text).resume;
            return resume.empty() || optim::CheckpointFolder::is_complete(resume);
          },
      .patience = from_seconds(can_return ? job.join_timeout : 0),
      .is_second = second};
  if (second) read_losses(job.out, plan);
  return plan;
}

net::JobPlan plan_of(const JobOptions& job, const CoordinatorFlags& flags) {
  return {.workers = static_cast<std::uint32_t>(job.workers),
          .servers = static_cast<std::uint32_t>(job.servers * (1 + job.replicas)),
          .replicas = job.replicas > 0,
          .agents = static_cast<std::uint32_t>(flags.nodes),
          .reserve_agent_0 = !flags.job_file.empty(),
          .colocated = static_cast<std::uint32_t>(job.colocated_servers()),
          .own_steps = parse_consistency(job.consistency).each_push_updates,
          .build = build_id(),
          .same_build = flags.same_build,
          .more = flags.more,
          .job = to_json(job),
          .join_timeout = from_seconds(job.join_timeout),
          .heartbeat_interval = from_seconds(job.heartbeat_timeout / 6),
          .heartbeat_timeout = from_seconds(job.heartbeat_timeout),
          .recovery = recovery_of(job, flags.nodes > 0 && job.max_restarts > 0, flags.second)};
}

/// Writes the metrics for TensorBoard, as the coordinator appends them to metrics.jsonl.
class TensorBoard {
 public:
  /// Creates the file, if the job wants one. `service` must not run yet.
  void begin(const JobOptions& job, bool second, const net::CoordinatorService& service) {
    if (!job.tensorboard) return;
    view::TensorBoardWriter::Run run{
        .folder = job.out, .workers = job.workers, .own_steps = parse_consistency(job.consistency).each_push_updates};
    if (!job.resume.empty()) run.first_step = optim::Checkpoint(job.resume).step();
    if (second)
      writer_.emplace(view::TensorBoardWriter::continue_part(run, service.size_before_appends("metrics.jsonl")));
    else
      writer_.emplace(run);
  }
  void take(const std::string& file, std::string_view lines) {
    if (writer_) writer_->take(file, lines);
  }
  void end(const net::JobResult& result) {
    try {
      if (writer_) writer_->finish();
    } catch (const Error&) {
      if (!result.failure) throw;  // otherwise the first failure is reported
    }
  }

 private:
  std::optional<view::TensorBoardWriter> writer_;
};

/// Prints the summary, as the launcher does if there is one.
int conclude(const JobOptions& job, const Invocation& invocation, SignalWatch& signals) {
  if (!has_training(job.out)) return 0;  // the workers were a user's programs
  if (job.trace) view::write_trace(job.out);
  const Summary summary = summarise(job.out, job, invocation);
  signals.end();  // the files are whole
  out::print("{}", describe(summary, job.out));
  return summary.ok() ? 0 : exit_status(ErrorKind::check_failed);
}

/// "2 workers and 4 servers (primaries 0, 1, and a follower of each, which is a psring-server, too)"
std::string processes_by_hand(const JobOptions& job) {
  const std::string workers = count_of(job.workers, "worker");
  if (job.server_processes() == 0) return workers;
  std::string text = fmt::format("{} and {}", workers, count_of(job.server_processes(), "server"));
  if (job.replicas == 0) return text;
  std::vector<std::string> ranks;
  for (std::size_t rank = 0; rank < job.standalone_servers(); ++rank) ranks.push_back(std::to_string(rank));
  return text +
         fmt::format(" (primaries {}, and a follower of each, which is a psring-server, too)", fmt::join(ranks, ", "));
}

/// Returns why the job ended before its last step; "" if it ended well.
std::string cause_of_end(const net::JobResult& result) {
  if (result.failure) return result.failure->what();
  return result.interrupted.signal != 0 ? "interrupted " + net::control::describe(result.interrupted) : "";
}

int coordinate(const CoordinatorFlags& flags, const Invocation& invocation) {
  using Effect = SignalWatch::Effect;
  const bool by_launcher = !flags.job_file.empty();
  SignalWatch signals(by_launcher ? Effect::held : Effect::ends_process);
  const SystemClock clock;
  if (flags.nodes > 0) options::check_count("--nodes", flags.nodes, options::kMostProcesses);
  JobOptions job = job_of(flags, invocation.app);
  const net::JobKey key = net::JobKey::load(flags.key);
  job.out = (by_launcher ? std::filesystem::path(flags.out) : make_run_folder(flags.out, "job")).string();
  if (!by_launcher) job.run_id = new_run_id();
  net::CoordinatorService::Options options;
  options.listen = flags.listen;
  options.run_folder = job.out;
  if (job.min_workers > 0 && job.max_restarts == 0 && flags.nodes == 0 && job.recovery == "checkpoint")
    fail(ErrorKind::usage, "--elastic: to continue from a checkpoint, agents must restart all processes; give --nodes");
  options.plan = plan_of(job, flags);
  if (flags.progress_fd >= 0) ::fcntl(flags.progress_fd, F_SETFL, O_NONBLOCK);
  if (flags.progress_fd >= 0)
    options.on_progress = [fd = flags.progress_fd](net::Peer, const std::string& text) { write_line(fd, text); };
  options.on_refusals = options.on_notice = [](const std::string& line) {
    out::print("{}\n", line);
    std::fflush(stdout);
  };
  TensorBoard tensorboard;
  if (job.tensorboard)
    options.on_append = [&](const std::string& file, std::string_view bytes) { tensorboard.take(file, bytes); };
  net::CoordinatorService service(std::move(options), key, clock);
  std::optional<LiveView> live;
  if (by_launcher) {
    tensorboard.begin(job, flags.second, service);  // its error comes before any member does
    publish_endpoint(flags.endpoint_fd, service.endpoint());
  } else {
    if (!job.live.empty()) live.emplace(job.out, job.live, false);
    signals.hold();
    begin_run(job.out, job, invocation);
    tensorboard.begin(job, flags.second, service);
    const std::string awaited =
        flags.nodes > 0 ? "the agents of " + count_of(flags.nodes, "host") : processes_by_hand(job);
    out::print("coordinator at {}: waiting for {}; run folder {}\n", service.endpoint(), awaited, job.out);
    std::fflush(stdout);
  }
  if (!flags.second) FaultTrigger(job.fault, {net::Role::coordinator, 0}).arm();
  const auto next_signal = [&] {
    if (live) live->tend();
    return signals.take();
  };
  const net::JobResult result = service.run({.fd = signals.fd(), .take = next_signal});
  tensorboard.end(result);
  const std::string cause = cause_of_end(result);
  if (!by_launcher && !cause.empty()) remove_unfinished(job.out, job);
  if (!by_launcher && !cause.empty()) record_end(job.out, cause);
  if (!by_launcher && !cause.empty()) signals.end();
  if (live && !cause.empty()) live->end();
  if (result.interrupted.signal != 0 && (result.failure || !by_launcher)) {
    invocation.output.settle();
    out::error(cause);
    return interrupted_status(result.interrupted.signal);
  }
  if (result.failure) throw *result.failure;
  if (by_launcher) return 0;
  const int status = conclude(job, invocation, signals);
  if (live) live->end();
  return status;
}

}  // namespace

Command add_coordinator(const Flags& program) {
  const Flags command =
      program.add_command("coordinator", "rendezvous of a job whose roles are started by hand or by agents");
  auto flags = std::make_shared<CoordinatorFlags>();  // shared: the parser fills it in, the command reads it
  command.add("--strategy", flags->strategy, "strategy of training, such as single, ps, ddp or zero3").show_default();
  command.add("--listen", flags->listen, "ADDR:PORT to listen at; port 0: any free port").show_default();
  command.add("--key", flags->key, "key file of the job").show_value("FILE").require();
  command.add("--out", flags->out, "run folder (a new folder in runs/)").show_value("DIR");
  command.add("--nodes", flags->nodes, "number of hosts whose agents start the roles; 0: by hand").show_default();
  add_same_build(command, flags->same_build);
  command.add("--job", flags->job_file).hide();
  command.add("--endpoint-fd", flags->endpoint_fd).hide();
  command.add("--progress-fd", flags->progress_fd).hide();
  command.add_switch("--second", flags->second).hide();
  command.add_switch("--more", flags->more).hide();
  add_job_flags(command, flags->job);
  command.add_footer("Without --workers, WORLD_SIZE of the environment is the number of workers.");
  return [flags](const Invocation& invocation) { return coordinate(*flags, invocation); };
}

}  // namespace psring::cli
