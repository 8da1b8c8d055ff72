#include <fstream>
#include <iterator>
#include <sstream>

#include <poll.h>
#include <unistd.h>

#include <psring/cli/cluster/private_key.h>
#include <psring/cli/train/tasks.h>
#include <psring/common/base/system/poll.h>
#include <psring/common/base/system/standard_files.h>
#include <psring/common/base/text/error.h>
#include <psring/common/net/address.h>
#include <psring/common/net/host.h>
#include <psring/common/net/key.h>
#include <psring/common/proc/agent.h>
#include <psring/common/proc/environment.h>

namespace psring::cli {
namespace {

namespace fs = std::filesystem;

constexpr int kLookEvery = 50;                          ///< milliseconds
constexpr auto kLeadersEnd = std::chrono::seconds(20);  ///< for task 0 to end, and to ask Slurm for another start
constexpr auto kLostLeader = std::chrono::seconds(2);   ///< the same, after the loss of its coordinator
constexpr auto kEndPatience = std::chrono::seconds(5);  ///< for the other tasks to hear that there will be no job

/// Returns the fields of /proc/<pid>/stat after the name, from the state on; empty if there is no such process.
std::vector<std::string> stat_of(const std::string& pid, std::string& name) {
  std::ifstream in("/proc/" + pid + "/stat");
  std::string line;
  std::getline(in, line);
  const std::size_t open = line.find('(');
  const std::size_t close = line.rfind(')');
  if (open == std::string::npos || close == std::string::npos) return {};
  name = line.substr(open + 1, close - open - 1);
  std::istringstream rest(line.substr(close + 1));
  return {std::istream_iterator<std::string>(rest), {}};
}

/// Whether a process has the variable: a script of the task has those that the launcher gave it, the launcher has not.
bool has_variable(const std::string& pid, const std::string& variable) {
  std::ifstream in("/proc/" + pid + "/environ");
  for (std::string pair; std::getline(in, pair, '\0');)
    if (pair.starts_with(variable + "=")) return true;
  return false;
}

/// Returns a name for the tasks that one launcher has started on this host: the process number and the starting time of
/// the hydra_pmi_proxy, or else of the first process above that is no script of the task.
std::string name_of_launcher(const LaunchedTask& task) {
  constexpr std::size_t kParent = 1;
  constexpr std::size_t kStartTime = 19;
  std::string name;
  const std::string parent = std::to_string(::getppid());
  std::string found;
  // In a container, the launcher itself may be process 1.
  for (std::string pid = parent; pid != "0" && (pid != "1" || found.empty());) {
    const auto fields = stat_of(pid, name);
    if (fields.size() <= kStartTime) break;
    const std::string here = fmt::format("mpi-{}-{}", pid, fields[kStartTime]);
    const bool is_script = found.empty() && has_variable(pid, task.rank_variable);
    if (!is_script && (found.empty() || name.starts_with("hydra_pmi"))) found = here;
    pid = fields[kParent];
  }
  return task.restart == 0 ? found : fmt::format("{}-{}", found, task.restart);
}

std::string with_port(const std::string& address, std::uint16_t port) { return net::to_string({address, port}); }

/// Returns the address of this host at which the other nodes reach it.
std::string own_address(const std::vector<std::string>& other_nodes) {
  for (const std::string& node : other_nodes) {
    try {
      return net::address_towards(node);
    } catch (const Error&) {  // a name that only the launcher knows
    }
  }
  try {
    const net::Endpoint own = net::resolve_endpoint("", with_port(net::host_name(), 1));
    if (!net::is_loopback(own)) return own.host;
  } catch (const Error&) {  // reported below
  }
  fail(ErrorKind::usage, "--listen: is needed, because no address of {} is known that other hosts reach",
       net::host_name());
}

}  // namespace

void add_launcher_flag(const Flags& command, std::string& launcher) {
  command
      .add("--launcher", launcher,
           "the program that has started this process as one of several tasks: slurm (srun), mpi (mpirun, mpiexec), "
           "flux "
           "(flux run), torchrun, none, or auto: read the environment")
      .show_default();
}

void add_task_flags(const Flags& command, TaskFlags& flags) {
  add_launcher_flag(command, flags.launcher);
  command
      .add("--meeting", flags.meeting, "folder that all hosts share, in which the tasks of a launcher find each other")
      .show_value("DIR")
      .show_default(kMeetingFolder);
}

Tasks::Tasks(const TaskFlags& flags, bool has_key)
    : task_(launched_task(flags.launcher, process_environment())),
      slurm_(slurm_job(process_environment())),
      started_by_launcher_(has_launcher(process_environment())),
      meeting_(flags.meeting) {
  if (!task_ && !meeting_.empty()) fail(ErrorKind::usage, "--meeting: means nothing without the tasks of a launcher");
  if (task_ && task_->tasks == 1) task_.reset();
  if (!task_) return;
  // Tasks of one host that have no key get one from task 0, through the folder.
  const bool by_folder = !meeting_.empty() || task_->has_store || (!has_key && task_->on_one_host());
  master_ = by_folder ? std::nullopt : master_endpoint();
  if (!master_) folder_.emplace(meeting_.empty() ? kMeetingFolder : meeting_, meeting_name());
}

std::string Tasks::meeting_name() const {
  if (!task_->name.empty()) return task_->name;
  if (!meeting_.empty()) return "mpi";
  if (!task_->on_one_host())
    fail(ErrorKind::usage,
         "--meeting: is needed, because {} does not name its jobs: give a new folder that all hosts share, such as "
         "--meeting $(mktemp -d -p .)",
         task_->launcher);
  return name_of_launcher(*task_);
}

void Tasks::warn_of_idle_nodes(std::size_t nodes) const {
  if (!slurm_ || started_by_launcher_ || nodes >= slurm_->nodes) return;
  out::print("warning: Slurm job {} has {} nodes, and this job uses {}: start it as srun psring train ...\n",
             slurm_->id, slurm_->nodes, nodes == 1 ? "only this host" : fmt::format("{} of them", nodes));
  std::fflush(stdout);
}

MeetingPoint Tasks::await_point(const Follow& options, SignalWatch& signals) const {
  if (master_) return {.endpoint = *master_};
  const SystemClock clock;
  const Moment deadline = clock.now() + options.join_timeout;
  for (;;) {
    if (auto point = folder_->look()) return *point;
    if (clock.now() >= deadline)
      fail(ErrorKind::peer_lost, "task {}: nothing from task 0 in {} for {:g} s (--join-timeout)", task_->rank,
           folder_->path().string(), seconds(options.join_timeout));
    pollfd polled{signals.fd(), POLLIN, 0};
    ::poll(&polled, 1,
           poll_milliseconds(clock.now(),
                             std::min<Moment>(deadline, clock.now() + std::chrono::milliseconds(kLookEvery))));
    if (const auto signal = signals.take()) return {.status = interrupted_status(*signal)};
  }
}

int Tasks::follow(const Follow& options, SignalWatch& signals, const Invocation& invocation) const {
  if (master_ && options.key_file.empty())
    fail(ErrorKind::usage, "--key: is needed, because tasks that meet at MASTER_ADDR do not get a key from task 0");
  const MeetingPoint point = await_point(options, signals);
  if (point.endpoint.empty()) {
    if (folder_ && folder_->look()) folder_->acknowledge(task_->rank);
    return point.status;  // task 0 has said why
  }
  std::optional<PrivateKey> key;
  AgentOptions agent{.endpoint = point.endpoint,
                     .key_file = options.key_file,
                     .command = {fs::read_symlink("/proc/self/exe").string()},
                     .keep_logs = true,
                     .host_id = net::host_id(),
                     .rank = task_->rank,
                     .join_timeout = options.join_timeout};
  if (!point.key.empty()) {
    agent.inherited.push_back(key.emplace(point.key).fd());
    agent.key_file = key->file();
  }
  if (!agent.key_file.empty()) agent.key_file = fs::absolute(agent.key_file);
  const std::string run_folder = point.run_folder.empty() ? options.run_folder : point.run_folder;
  agent.log_folder = run_folder.empty() ? "logs" : fs::path(run_folder) / "logs";
  const SystemClock clock;
  const AgentResult result = run_agent(agent, signals, clock);
  invocation.output.settle();
  // Task 0 says why the job failed, unless this task is the one that knows.
  const bool knows = !result.joined || (result.coordinator_was_silent && task_->here == 0);
  const auto say = [&] {
    if (!result.cause.empty()) out::error(fmt::format("task {}: {}", task_->rank, result.cause));
  };
  if (knows) say();
  if (result.status != 0 && !knows && !result.coordinator_was_silent &&
      !await_leaders_end(signals, result.coordinator_was_lost ? kLostLeader : kLeadersEnd))
    say();
  return result.status;
}

/// Waits until task 0 has said how the job ended: mpirun ends all tasks as soon as one of them fails. Returns false if
/// it does not, as it was killed, or if a signal comes.
bool Tasks::await_leaders_end(SignalWatch& signals, Nanoseconds patience) const {
  if (!folder_) return true;
  const SystemClock clock;
  const Moment deadline = clock.now() + patience;
  while (folder_->look()) {
    if (clock.now() >= deadline || signals.take()) return false;
    pollfd polled{signals.fd(), POLLIN, 0};
    ::poll(&polled, 1, kLookEvery);
  }
  return true;
}

int Tasks::lead(const std::function<int()>& body) {
  if (!task_) return body();
  try {
    const int status = body();
    if (!told_) end_others(status);
    return status;
  } catch (const std::exception& exception) {
    if (told_) throw;
    const Error error = to_error(exception);
    out::error(error.what());  // before the others end, because mpirun ends all tasks as soon as one fails
    const int status = exit_status(error.kind());
    end_others(status);
    return status;
  }
}

/// Tells the other tasks that there is no job to join, and waits until they have heard.
void Tasks::end_others(int status) {
  if (!folder_) return;
  try {
    folder_->publish({.status = status});
    const SystemClock clock;
    const Moment deadline = clock.now() + kEndPatience;
    while (!folder_->all_acknowledged(task_->tasks) && clock.now() < deadline) ::poll(nullptr, 0, kLookEvery);
  } catch (const Error&) {  // the first error is reported
  }
}

std::string Tasks::listen_address(const std::string& wanted) const {
  const std::string loopback = with_port(net::loopback_address(), 0);
  if (!task_) return wanted.empty() ? loopback : wanted;
  std::string address = wanted;
  if (address.empty() && master_) address = *master_;
  if (address.empty()) address = task_->on_one_host() ? loopback : with_port(own_address(task_->other_nodes), 0);
  if (!task_->on_one_host() && net::is_loopback(net::resolve_endpoint("--listen", address, 0)))
    fail(ErrorKind::usage, "--listen {}: tasks on other hosts cannot reach it", address);
  return address;
}

void Tasks::prepare(LaunchOptions& options) {
  options.slurm_job = slurm_;
  if (!task_) return;
  options.nodes = task_->tasks;
  if (master_ && !options.key_file)
    fail(ErrorKind::usage, "--key: is needed, because tasks that meet at MASTER_ADDR do not get a key from task 0");
  options.tell_tasks = [this, folder = options.out, own_key = !options.key_file](const std::string& endpoint,
                                                                                 const net::JobKey& key) {
    told_ = true;
    if (folder_)
      folder_->publish({.endpoint = endpoint, .key = own_key ? key.text() : "", .run_folder = folder.string()});
  };
}

void refuse_tasks(const char* command, const std::string& launcher) {
  const auto task = launched_task(launcher, process_environment());
  if (task && task->tasks > 1)
    fail(ErrorKind::usage,
         "{}: starts all of its processes itself, on one host: start it once, not as {} tasks of {} (--launcher none "
         "ignores the launcher)",
         command, task->tasks, task->launcher);
}

}  // namespace psring::cli
