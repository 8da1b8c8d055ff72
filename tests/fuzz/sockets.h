#pragma once

#include <array>
#include <span>

#include <sys/socket.h>

#include <psring/common/base/system/fd.h>
#include <psring/tests/fuzz/input.h>

namespace psring::fuzz {

/// Two ends of a local connection, non-blocking.
inline std::array<Fd, 2> socket_pair(int type) {
  std::array<int, 2> ends{};
  require(::socketpair(AF_UNIX, type | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends.data()) == 0, "a pair of sockets");
  return {Fd(ends[0]), Fd(ends[1])};
}

/// Sends as many of the bytes as the kernel takes.
inline void write_some(const Fd& socket, std::span<const std::byte> bytes) {
  [[maybe_unused]] const ssize_t sent = ::send(socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
}

}  // namespace psring::fuzz
