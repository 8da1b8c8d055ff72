#include <cerrno>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <string>
#include <system_error>

#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <psring/cli/check/descendants.h>
#include <psring/common/base/error.h>
#include <psring/common/base/fd.h>

namespace psring::cli {
namespace {

namespace fs = std::filesystem;

constexpr int kPatienceMilliseconds = 10'000;  ///< for a killed process to end

/// Parses "PID (NAME) STATE PARENT ..." of /proc/PID/stat. The name may contain blanks and parentheses. Returns 0 if
/// the process has ended.
pid_t parent_of(const fs::path& process) {
  std::ifstream in(process / "stat");
  std::string line;
  if (!std::getline(in, line)) return 0;
  const std::size_t end = line.rfind(')');
  if (end == std::string::npos || end + 4 > line.size()) return 0;
  pid_t parent = 0;
  std::from_chars(line.data() + end + 4, line.data() + line.size(), parent);
  return parent;
}

/// Returns the processes whose chain of parents leads to this one.
std::set<pid_t> descendants() {
  std::multimap<pid_t, pid_t> children;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator("/proc", error)) {
    const std::string name = entry.path().filename().string();
    pid_t pid = 0;
    const auto [end, bad] = std::from_chars(name.data(), name.data() + name.size(), pid);
    if (bad == std::errc() && end == name.data() + name.size()) children.emplace(parent_of(entry.path()), pid);
  }
  std::set<pid_t> found;
  std::set<pid_t> parents{::getpid()};
  while (!parents.empty()) {
    std::set<pid_t> next;
    for (const pid_t parent : parents)
      for (auto [child, last] = children.equal_range(parent); child != last; ++child)
        if (found.insert(child->second).second) next.insert(child->second);
    parents = std::move(next);
  }
  return found;
}

/// Sends a signal to every descendant that has not had it yet, as long as new ones appear. Returns the processes that
/// took it.
std::set<pid_t> signal_all(int signal) {
  std::set<pid_t> tried;
  std::set<pid_t> taken;
  for (bool more = true; more;) {
    more = false;
    for (const pid_t pid : descendants()) {
      if (!tried.insert(pid).second) continue;
      more = true;
      if (::kill(pid, signal) == 0) taken.insert(pid);  // a program of another user's rights may refuse
    }
  }
  return taken;
}

}  // namespace

Descendants::Descendants() {
  check(::prctl(PR_SET_CHILD_SUBREAPER, 1) == 0, "prctl(PR_SET_CHILD_SUBREAPER): {}", std::strerror(errno));
}

Descendants::~Descendants() {
  signal_all(SIGSTOP);  // first, so that none starts another process while its parent dies
  for (const pid_t pid : signal_all(SIGKILL)) {
    const Fd ended(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
    pollfd polled{ended.get(), POLLIN, 0};
    if (ended) ::poll(&polled, 1, kPatienceMilliseconds);
  }
  while (::waitpid(-1, nullptr, WNOHANG) > 0) {
  }
  ::prctl(PR_SET_CHILD_SUBREAPER, 0);
}

}  // namespace psring::cli
