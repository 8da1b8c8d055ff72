#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstring>
#include <fstream>
#include <set>
#include <span>
#include <system_error>
#include <utility>

#include <dlfcn.h>
#include <fmt/core.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <psring/cli/check/solution.h>
#include <psring/common/base/system/fd.h>
#include <psring/common/base/system/file.h>
#include <psring/common/base/system/standard_files.h>
#include <psring/common/base/text/error.h>
#include <psring/common/base/text/number.h>

namespace psring::cli {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kShown = 2048;           ///< bytes of each end of an output that is too long to be shown
constexpr int kPatienceMilliseconds = 10'000;  ///< for a killed process to end

/// Parses "PID (NAME) STATE PARENT ..." of /proc/PID/stat. The name may contain blanks and parentheses. Returns 0 if
/// the process has ended.
pid_t parent_of(const fs::path& process) {
  std::ifstream in(process / "stat");
  std::string line;
  std::getline(in, line);
  const std::size_t end = line.rfind(')');
  pid_t parent = 0;
  if (end != std::string::npos && end + 4 < line.size())
    std::from_chars(line.data() + end + 4, line.data() + line.size(), parent);
  return parent;
}

std::set<pid_t> children() {
  std::set<pid_t> found;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator("/proc", error)) {
    const std::string name = entry.path().filename().string();
    if (const auto pid = read_number<pid_t>(name); pid && parent_of(entry.path()) == ::getpid()) found.insert(*pid);
  }
  return found;
}

/// Keeps hold of every process that this process starts, directly or through others: a process whose parent has ended
/// becomes a child of this one, also if it began a session of its own. The destructor kills and reaps them all.
class Descendants {
 public:
  Descendants() {
    check(::prctl(PR_SET_CHILD_SUBREAPER, 1) == 0, "prctl(PR_SET_CHILD_SUBREAPER): {}", std::strerror(errno));
  }
  ~Descendants() {
    std::set<pid_t> tried;  // a program of another user's rights may refuse
    for (bool more = true; more;) {
      more = false;
      for (const pid_t pid : children()) {
        if (!tried.insert(pid).second || ::kill(pid, SIGKILL) != 0) continue;
        more = true;  // the children of this one become those of this process
        const Fd ended(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
        pollfd polled{ended.get(), POLLIN, 0};
        if (ended) ::poll(&polled, 1, kPatienceMilliseconds);
      }
      while (::waitpid(-1, nullptr, WNOHANG) > 0) {
      }
    }
    ::prctl(PR_SET_CHILD_SUBREAPER, 0);
  }
  Descendants(const Descendants&) = delete;
  Descendants& operator=(const Descendants&) = delete;
};

std::string read_ends(const std::string& path) {
  std::string text = read_whole_if_present(path).value_or("");
  if (text.size() <= 2 * kShown) return text;
  return fmt::format("{}\n[… {} bytes …]\n{}", text.substr(0, kShown), text.size() - 2 * kShown,
                     text.substr(text.size() - kShown));
}

constexpr std::chrono::seconds kCompileTime{180};
constexpr const char* kHeader = "psring/cli/check/exercise.h";

/// The folder that has psring's headers: include/ of the installation, or of the build tree.
fs::path include_folder() {
  std::error_code error;
  const fs::path bin = fs::read_symlink("/proc/self/exe", error).parent_path();
  for (const fs::path& folder : {bin / "../include", bin / "../../include", bin / "../../../include"})
    if (fs::exists(folder / kHeader, error)) return folder.lexically_normal();
  fail(ErrorKind::data,
       "{} is neither installed beside {} nor in its build folder; run the psring that was built or installed", kHeader,
       bin.string());
}

}  // namespace

Apart run_apart(const std::string& name, std::vector<std::string> command, const fs::path& folder, Nanoseconds limit,
                SignalWatch& signals) {
  Apart apart;
  {
    const Descendants descendants;
    const SystemClock clock;
    LocalCluster processes(folder, clock);
    processes.start(name, std::move(command));
    const int wake = signals.fd();
    apart.exit = processes.next_exit(clock.now() + limit, std::span(&wake, 1));
    if (const auto signal = signals.take()) throw Interrupted{*signal};
  }  // kills what still runs: nobody writes the log any more
  apart.printed = read_ends(folder / (name + ".log"));
  return apart;
}

void limit_output() {
  ::dup2(STDOUT_FILENO, STDERR_FILENO);  // the log itself, which the limit holds for
  const rlimit limit{kMostPrinted, kMostPrinted};
  ::setrlimit(RLIMIT_FSIZE, &limit);
}

Solution::Solution(const fs::path& library) : library_(::dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL)) {
  if (library_ == nullptr) fail(ErrorKind::data, "the compiled solution cannot be loaded: {}", ::dlerror());
}

Solution::~Solution() { ::dlclose(library_); }

void* Solution::find(const char* name) const {
  void* const function = ::dlsym(library_, name);
  if (function == nullptr) fail(ErrorKind::data, "the solution defines no function {}; exercise.h declares it", name);
  return function;
}

void compile_solution(const std::string& compiler, const fs::path& source, const fs::path& to, const fs::path& folder,
                      SignalWatch& signals) {
  const fs::path include = include_folder();
  // Assertions of the standard library stop a program that indexes a span or a vector out of its bounds.
  const std::vector<std::string> command = {
      compiler, "-std=c++20", "-O1", "-g",  "-Wall", "-Wextra", "-fPIC", "-shared", "-D_GLIBCXX_ASSERTIONS",
      "-I",     include,      "-x",  "c++", source,  "-o",      to};
  Apart compiled;
  try {
    compiled = run_apart("compiler", command, folder, kCompileTime, signals);
  } catch (const Error&) {
    fail(ErrorKind::usage,
         "the C++ compiler '{}' cannot be run; install g++ (scripts/setup does), or name another with --compiler",
         compiler);
  }
  out::print("{}", compiled.printed);
  const auto& exit = compiled.exit;
  if (!exit) fail(ErrorKind::data, "{}: the compiler takes longer than {} s", source.string(), kCompileTime.count());
  if (exit->status != 0 || exit->signal != 0)
    fail(ErrorKind::data, "{} does not compile; the compiler's messages stand above", source.string());
}

}  // namespace psring::cli
