#include <algorithm>
#include <cerrno>
#include <cstring>

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <psring/common/base/text/error.h>
#include <psring/common/net/unix_socket.h>

namespace psring::net {
namespace {

struct Address {
  sockaddr_un at{};
  socklen_t size = 0;

  explicit Address(const std::string& name) {
    // An abstract name starts with a zero byte and has no terminating zero.
    if (name.empty() || name.size() >= sizeof at.sun_path)
      fail(ErrorKind::usage, "'{}' is not a valid name of a local socket: expected 1 to {} bytes", name,
           sizeof at.sun_path - 1);
    at.sun_family = AF_UNIX;
    std::memcpy(at.sun_path + 1, name.data(), name.size());
    size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  }
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&at); }
};

Fd make_socket() {
  Fd socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket) fail(ErrorKind::data, "cannot make a local socket: {}", std::strerror(errno));
  return socket;
}

std::optional<ucred> credentials(const Fd& socket) {
  ucred other{};
  socklen_t size = sizeof other;
  if (::getsockopt(socket.get(), SOL_SOCKET, SO_PEERCRED, &other, &size) != 0) return std::nullopt;
  return other;
}

bool same_user(const Fd& socket) {
  const auto other = credentials(socket);
  return other && other->uid == ::geteuid();
}

struct Control {
  alignas(cmsghdr) char bytes[CMSG_SPACE(kMaxPacketFds * sizeof(int))] = {};
};

std::vector<Fd> take_fds(msghdr& message) {
  std::vector<Fd> fds;
  for (cmsghdr* c = CMSG_FIRSTHDR(&message); c != nullptr; c = CMSG_NXTHDR(&message, c)) {
    if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
    const std::size_t count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < count; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(c) + i * sizeof(int), sizeof fd);
      fds.emplace_back(fd);
    }
  }
  return fds;
}

}  // namespace

Fd listen_unix(const std::string& name) {
  const Address address(name);
  Fd socket = make_socket();
  if (::bind(socket.get(), address.get(), address.size) != 0 || ::listen(socket.get(), SOMAXCONN) != 0)
    fail(errno == EADDRINUSE ? ErrorKind::usage : ErrorKind::data, "cannot listen at local socket '{}': {}", name,
         std::strerror(errno));
  return socket;
}

std::optional<Fd> accept_unix(const Fd& listener) {
  for (;;) {
    Fd socket(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!socket) {
      if (errno == EINTR || errno == ECONNABORTED) continue;
      return std::nullopt;
    }
    if (same_user(socket)) return socket;
  }
}

Fd connect_unix(const std::string& name, const Deadline& deadline) {
  const Address address(name);
  Fd socket = make_socket();
  // connect returns EAGAIN if the backlog is full, and poll cannot wait for room: let the kernel wait, with a time
  // limit.
  const Nanoseconds left = std::max(deadline.moment() - SystemClock().now(), Nanoseconds(1000));
  const auto whole =
      std::min(std::chrono::duration_cast<std::chrono::microseconds>(left), std::chrono::microseconds(3'600'000'000));
  const timeval limit{whole.count() / 1'000'000, whole.count() % 1'000'000};
  const int flags = ::fcntl(socket.get(), F_GETFL);
  ::setsockopt(socket.get(), SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
  ::fcntl(socket.get(), F_SETFL, flags & ~O_NONBLOCK);
  const bool connected = ::connect(socket.get(), address.get(), address.size) == 0;
  const int error = errno;
  ::fcntl(socket.get(), F_SETFL, flags);
  if (!connected)
    fail(error == EAGAIN ? ErrorKind::timeout : ErrorKind::peer_lost, "cannot connect to local socket '{}': {}", name,
         std::strerror(error));
  if (!same_user(socket)) fail(ErrorKind::unauthorised, "local socket '{}' belongs to another user", name);
  return socket;
}

pid_t process_behind(const Fd& socket) {
  const auto other = credentials(socket);
  return other ? other->pid : 0;
}

void send_packet(const Fd& socket, std::span<const std::byte> bytes, std::span<const int> fds) {
  check(bytes.size() <= kMaxPacketBytes && fds.size() <= kMaxPacketFds, "packet of {} bytes, {} descriptors",
        bytes.size(), fds.size());
  iovec data{const_cast<std::byte*>(bytes.data()), bytes.size()};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  Control control;
  if (!fds.empty()) {
    message.msg_control = control.bytes;
    message.msg_controllen = CMSG_SPACE(fds.size_bytes());
    cmsghdr* c = CMSG_FIRSTHDR(&message);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(fds.size_bytes());
    std::memcpy(CMSG_DATA(c), fds.data(), fds.size_bytes());
  }
  if (::sendmsg(socket.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
    fail(ErrorKind::peer_lost, "cannot send to a local socket: {}", std::strerror(errno));
}

std::optional<Packet> receive_packet(const Fd& socket) {
  std::byte bytes[kMaxPacketBytes];
  iovec data{bytes, sizeof bytes};
  Control control;
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control.bytes;
  message.msg_controllen = sizeof control.bytes;
  const ssize_t size = ::recvmsg(socket.get(), &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  if (size < 0) {
    if (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR) return std::nullopt;
    fail(ErrorKind::peer_lost, "local socket: {}", std::strerror(errno));
  }
  Packet packet{{bytes, bytes + size}, take_fds(message)};
  if (size == 0) fail(ErrorKind::peer_lost, "local socket closed by the other end");
  if ((message.msg_flags & MSG_CTRUNC) != 0 && packet.fds.size() < kMaxPacketFds)
    fail(ErrorKind::data,
         "this process has no free file descriptors for those that a peer sent; raise the limit (ulimit -n)");
  if ((message.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0)
    fail(ErrorKind::protocol, "packet of more than {} bytes or {} descriptors", kMaxPacketBytes, kMaxPacketFds);
  return packet;
}

Packet receive_packet(const Fd& socket, const Deadline& deadline) {
  do {
    if (std::optional<Packet> packet = receive_packet(socket)) return std::move(*packet);
  } while (wait_for(socket, POLLIN, deadline));
  fail(ErrorKind::timeout, "no packet arrived on the local socket in time");
}

bool hung_up(const Fd& socket) {
  std::byte byte{};
  return ::recv(socket.get(), &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 0;
}

bool wait_for(const Fd& fd, short events, const Deadline& deadline) {
  pollfd entry{fd.get(), events, 0};
  for (;;) {
    deadline.check();
    const Nanoseconds left = deadline.next_sleep(SystemClock().now());
    if (left <= Nanoseconds(0)) return false;
    const timespec limit{left.count() / 1'000'000'000, left.count() % 1'000'000'000};
    const int ready = ::ppoll(&entry, 1, &limit, nullptr);
    if (ready > 0) return true;
    if (ready < 0 && errno != EINTR) fail(ErrorKind::bug, "ppoll: {}", std::strerror(errno));
  }
}

}  // namespace psring::net
