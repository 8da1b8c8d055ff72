#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <psring/common/base/system/fd.h>
#include <psring/common/base/system/poll.h>
#include <psring/common/base/text/error.h>
#include <psring/common/proc/coordinator/coordinator_process.h>

namespace psring {
namespace {

constexpr std::size_t kEndpointBytes = 512;

/// Reads a line; returns "" if the pipe was closed before the newline.
std::string read_line(int fd, const std::string& name, Moment deadline, const Clock& clock) {
  std::string line;
  for (;;) {
    pollfd polled{fd, POLLIN, 0};
    const int ready = ::poll(&polled, 1, poll_milliseconds(clock.now(), deadline));
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) fail(ErrorKind::timeout, "the {} did not start in time", name);
    std::array<char, kEndpointBytes> buffer;
    const ssize_t size = ::read(fd, buffer.data(), buffer.size());
    if (size <= 0 || line.size() > kEndpointBytes) return "";
    line.append(buffer.data(), static_cast<std::size_t>(size));
    if (line.back() == '\n') return line.substr(0, line.size() - 1);
  }
}

}  // namespace

std::string start_listening(LocalCluster& cluster, const std::string& name, std::vector<std::string> argv,
                            Moment deadline, const Clock& clock, std::span<const int> inherited) {
  auto [read_end, write_end] = make_pipe();
  argv.insert(argv.end(), {"--endpoint-fd", std::to_string(write_end.get())});
  std::vector<int> open(inherited.begin(), inherited.end());
  open.push_back(write_end.get());
  cluster.start(name, std::move(argv), open);
  write_end = Fd();
  std::string endpoint = read_line(read_end.get(), name, deadline, clock);
  if (!endpoint.empty()) return endpoint;
  const auto exit = cluster.next_exit(deadline);
  if (!exit) fail(ErrorKind::timeout, "the {} did not publish its endpoint in time", name);
  if (exit->signal != 0) fail(ErrorKind::peer_lost, "the {} was ended by signal {} as it started", name, exit->signal);
  const ErrorKind kind = kind_of_status(exit->status);
  const std::string why = message_of(*exit);
  if (why.empty()) fail(kind, "the {} did not start: it exited with status {}", name, exit->status);
  throw Error(kind, why);
}

std::string start_coordinator(LocalCluster& cluster, std::vector<std::string> argv, Moment deadline, const Clock& clock,
                              std::span<const int> inherited) {
  return start_listening(cluster, "coordinator", std::move(argv), deadline, clock, inherited);
}

void publish_endpoint(int fd, const std::string& endpoint) {
  const std::string line = endpoint + "\n";
  const Fd pipe(fd);
  if (::write(fd, line.data(), line.size()) != static_cast<ssize_t>(line.size()))
    fail(ErrorKind::usage, "--endpoint-fd {}: {}", fd, std::strerror(errno));
}

}  // namespace psring
