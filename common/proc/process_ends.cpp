#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include <sys/epoll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <psring/common/base/text/error.h>
#include <psring/common/proc/process_ends.h>

namespace psring {

ProcessEnds::ProcessEnds() : epoll_(::epoll_create1(EPOLL_CLOEXEC)) {
  if (!epoll_) fail(ErrorKind::data, "cannot watch processes: {}", std::strerror(errno));
}

void ProcessEnds::watch(std::uint32_t pid, std::string name) {
  Fd process(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  if (!process) {
    if (errno == ESRCH) ended_.push_back(std::move(name));
    return;
  }
  epoll_event event{.events = EPOLLIN, .data = {.fd = process.get()}};
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, process.get(), &event) != 0) return;
  const int key = process.get();
  watched_.insert_or_assign(key, std::pair(std::move(process), std::move(name)));
}

std::vector<std::string> ProcessEnds::take() {
  std::vector<std::string> ended = std::exchange(ended_, {});
  std::array<epoll_event, 64> events;
  const int count = ::epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), 0);
  for (int i = 0; i < count; ++i) {
    auto process = watched_.extract(events[static_cast<std::size_t>(i)].data.fd);
    ended.push_back(std::move(process.mapped().second));
  }
  return ended;
}

}  // namespace psring
