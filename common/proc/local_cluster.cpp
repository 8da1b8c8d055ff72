#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <string_view>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <psring/common/base/system/poll.h>
#include <psring/common/base/text/error.h>
#include <psring/common/proc/local_cluster.h>

namespace psring {
namespace {

constexpr const char* kSelf = "/proc/self/exe";
constexpr std::size_t kLineBytes = 4096;  ///< the most bytes of a line that are kept

/// The child's arguments, made before the fork: at the fork, other threads may hold locks, such as malloc's.
struct Launch {
  const char* program = nullptr;
  std::vector<char*> argv;
  std::span<const int> inherited;
  pid_t parent = 0;
  int input = -1;
  int output = -1;
  int errors = -1;
  int failure = -1;  ///< takes errno if exec fails, and is closed by a successful exec
};

[[noreturn]] void fail_child(const Launch& launch) {
  const int error = errno;
  [[maybe_unused]] const ssize_t told = ::write(launch.failure, &error, sizeof error);
  ::_exit(127);
}

/// Runs in the child, between fork and exec: only async-signal-safe calls are allowed.
[[noreturn]] void run_child(const Launch& launch) {
  ::setpgid(0, 0);
  if (::prctl(PR_SET_PDEATHSIG, SIGKILL) != 0) fail_child(launch);
  if (::getppid() != launch.parent) ::_exit(127);  // the parent died before the line above
  for (const auto& [from, to] : {std::pair(launch.input, STDIN_FILENO), std::pair(launch.output, STDOUT_FILENO),
                                 std::pair(launch.errors, STDERR_FILENO)})
    if (::dup2(from, to) < 0) fail_child(launch);
  for (const int fd : launch.inherited)
    if (::fcntl(fd, F_SETFD, 0) != 0) fail_child(launch);
  for (const int signal : {SIGPIPE, SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGCHLD}) ::signal(signal, SIG_DFL);
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  ::execvp(launch.program, launch.argv.data());
  fail_child(launch);
}

}  // namespace

std::string message_of(const ProcessExit& exit) {
  std::string text = exit.last_line;
  if (text.starts_with(kErrorPrefix)) text.erase(0, kErrorPrefix.size());
  return text;
}

LocalCluster::LocalCluster(std::filesystem::path log_folder, const Clock& clock, bool keep_logs)
    : log_folder_(std::move(log_folder)), clock_(clock), keep_logs_(keep_logs) {
  std::error_code error;
  own_path_ = std::filesystem::read_symlink(kSelf, error).string();
  std::filesystem::create_directory(log_folder_, error);
  if (error) fail(ErrorKind::data, "{}: cannot create the folder: {}", log_folder_.string(), error.message());
}

LocalCluster::~LocalCluster() {
  signal_all(SIGKILL);
  while (!processes_.empty()) reap(processes_.begin());
}

pid_t LocalCluster::start(const std::string& name, std::vector<std::string> argv, std::span<const int> inherited) {
  check(!argv.empty(), "a process needs a program");
  const std::filesystem::path log_path = log_folder_ / (name + ".log");
  const int anew = started_.insert(name).second && !keep_logs_ ? O_TRUNC : 0;
  Fd log(::open(log_path.c_str(), O_WRONLY | O_CREAT | anew | O_APPEND | O_CLOEXEC, 0644));
  if (!log) fail(ErrorKind::data, "{}: {}", log_path.string(), std::strerror(errno));
  const Fd input(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  Pipe errors = make_pipe();
  Pipe failure = make_pipe();
  ::fcntl(errors.read_end.get(), F_SETFL, O_NONBLOCK);

  // This process's own program is executed from the file that runs here, which the path may no longer name: a job whose
  // program was rebuilt meanwhile continues with the program that it began with.
  const char* program = argv.front() == own_path_ ? kSelf : argv.front().c_str();
  Launch launch{
      program, {}, inherited, ::getpid(), input.get(), log.get(), errors.write_end.get(), failure.write_end.get()};
  for (std::string& argument : argv) launch.argv.push_back(argument.data());
  launch.argv.push_back(nullptr);
  const pid_t pid = ::fork();
  if (pid < 0) fail(ErrorKind::data, "{}: cannot start a process: {}", name, std::strerror(errno));
  if (pid == 0) run_child(launch);

  failure.write_end = Fd();
  int error = 0;
  ssize_t told = 0;
  do told = ::read(failure.read_end.get(), &error, sizeof error);
  while (told < 0 && errno == EINTR);
  if (told == sizeof error) {
    ::waitpid(pid, nullptr, 0);
    fail(ErrorKind::data, "{}: cannot execute {}: {}", name, argv.front(), std::strerror(error));
  }
  // The child is not reaped yet, so the number cannot belong to another process.
  Fd pid_fd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  processes_.push_back({name, pid, std::move(pid_fd), std::move(errors.read_end), std::move(log), {}, {}, {}});
  check(static_cast<bool>(processes_.back().pid_fd), "cannot open a pidfd: {}", std::strerror(errno));
  return pid;
}

bool LocalCluster::runs(const std::string& name) const {
  return std::any_of(processes_.begin(), processes_.end(),
                     [&](const Process& process) { return process.name == name; });
}

bool LocalCluster::kill(const std::string& name) {
  const auto found =
      std::find_if(processes_.begin(), processes_.end(), [&](const Process& process) { return process.name == name; });
  return found != processes_.end() && ::kill(-found->pid, SIGKILL) == 0;
}

void LocalCluster::kill_stopped(Nanoseconds patience) {
  const Moment before = std::exchange(looked_, clock_.now());
  const bool stood_still = before != Moment::min() && looked_ - before > patience / 2;
  for (Process& process : processes_) {
    siginfo_t info{};
    while (::waitid(P_PID, static_cast<id_t>(process.pid), &info, WSTOPPED | WCONTINUED | WNOHANG) == 0 &&
           info.si_pid != 0) {
      process.stopped.reset();
      if (info.si_code == CLD_STOPPED) process.stopped = clock_.now();
      info = {};
    }
    if (process.stopped && stood_still) process.stopped = looked_;
    if (!process.stopped || clock_.now() - *process.stopped < patience) continue;
    process.line = fmt::format("stood still for {:.1f} s", seconds(clock_.now() - *process.stopped));
    ::kill(-process.pid, SIGKILL);
  }
}

std::optional<ProcessExit> LocalCluster::next_exit(Moment deadline, std::span<const int> wake_fds) {
  while (!processes_.empty() || !wake_fds.empty()) {
    std::vector<pollfd> polled;
    for (const Process& process : processes_) {
      polled.push_back({process.pid_fd.get(), POLLIN, 0});
      polled.push_back({process.errors.get(), POLLIN, 0});  // once closed it is -1, which poll skips
    }
    for (const int fd : wake_fds) polled.push_back({fd, POLLIN, 0});
    const int ready = ::poll(polled.data(), polled.size(), poll_milliseconds(clock_.now(), deadline));
    if (ready < 0) check(errno == EINTR, "poll: {}", std::strerror(errno));
    if (ready <= 0) {
      if (clock_.now() >= deadline) return std::nullopt;
      continue;
    }
    auto at = polled.begin();
    for (auto process = processes_.begin(); process != processes_.end(); ++process, at += 2) {
      if (at[1].revents != 0) collect(*process);
      if (at[0].revents != 0) return reap(process);
    }
    for (; at != polled.end(); ++at)
      if (at->revents != 0) return std::nullopt;
  }
  return std::nullopt;
}

std::vector<int> LocalCluster::fds() const {
  std::vector<int> all;
  for (const Process& process : processes_)
    for (const Fd* fd : {&process.pid_fd, &process.errors})
      if (*fd) all.push_back(fd->get());
  return all;
}

std::vector<ProcessExit> LocalCluster::terminate_all(Nanoseconds grace) {
  std::vector<ProcessExit> exits;
  const Moment deadline = clock_.now() + grace;
  signal_all(SIGTERM);
  signal_all(SIGCONT);  // a stopped process takes no SIGTERM
  while (std::optional<ProcessExit> exit = next_exit(deadline)) exits.push_back(std::move(*exit));
  signal_all(SIGKILL);
  while (!processes_.empty()) exits.push_back(reap(processes_.begin()));
  return exits;
}

/// Copies the process's standard error to the log, and keeps the last line.
void LocalCluster::collect(Process& process) {
  std::array<char, 16384> buffer;
  while (process.errors) {
    const ssize_t size = ::read(process.errors.get(), buffer.data(), buffer.size());
    if (size < 0 && errno == EINTR) continue;
    if (size < 0 && errno == EAGAIN) return;
    if (size <= 0) {
      process.errors = Fd();
      return;
    }
    const std::string_view text(buffer.data(), static_cast<std::size_t>(size));
    write_all(process.log.get(), std::as_bytes(std::span(text)));  // a full disk must not end the job: bytes are lost
    for (const char c : text) {
      if (c != '\n' && c != '\r') {
        if (process.line.size() < kLineBytes) process.line += c;
      } else if (!process.line.empty()) {
        process.last_line = std::exchange(process.line, {});
      }
    }
  }
}

/// Waits for the process's end. REQUIRES: it has ended, or is about to end.
ProcessExit LocalCluster::reap(std::list<Process>::iterator process) {
  siginfo_t info{};
  // Kills the rest of the group before reaping: only until then does the group's number belong to this process.
  while (::waitid(P_PID, static_cast<id_t>(process->pid), &info, WEXITED | WNOWAIT) != 0 && errno == EINTR) {
  }
  ::kill(-process->pid, SIGKILL);
  collect(*process);
  while (::waitid(P_PID, static_cast<id_t>(process->pid), &info, WEXITED) != 0 && errno == EINTR) {
  }
  const bool exited = info.si_code == CLD_EXITED;
  ProcessExit exit{process->name, process->pid, exited ? info.si_status : 0, exited ? 0 : info.si_status,
                   process->line.empty() ? process->last_line : process->line};
  processes_.erase(process);
  return exit;
}

void LocalCluster::signal_all(int signal) {
  for (const Process& process : processes_) ::kill(-process.pid, signal);
}

}  // namespace psring
