#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <sys/types.h>

#include <psring/common/base/deadline.h>
#include <psring/common/base/fd.h>

namespace psring::net {

/// Packets and file descriptors between processes of one host and network namespace: sockets of
/// SOCK_SEQPACKET with abstract names, which leave no file behind. They open links; no tensor passes.

inline constexpr std::size_t kMaxPacketBytes = 1024;
inline constexpr std::size_t kMaxPacketFds = 4;

struct Packet {
  std::vector<std::byte> bytes;
  std::vector<Fd> fds;
};

/// Throws usage where the name is taken or too long.
Fd listen_unix(const std::string& name);
/// The next client, or none. One of another user is hung up on.
std::optional<Fd> accept_unix(const Fd& listener);
/// Throws peer_lost where nobody listens, timeout, and unauthorised where it is another user.
Fd connect_unix(const std::string& name, const Deadline& deadline);

/// The process at the other end when the socket was connected; 0 where the system does not say.
pid_t process_behind(const Fd& socket);

/// Never waits; throws peer_lost where the other end is gone or takes nothing.
void send_packet(const Fd& socket, std::span<const std::byte> bytes, std::span<const int> fds = {});
/// What is there, or nothing. Throws peer_lost where the other end is gone, protocol where the packet is
/// larger than allowed.
std::optional<Packet> receive_packet(const Fd& socket);
/// Waits for a packet; throws timeout.
Packet receive_packet(const Fd& socket, const Deadline& deadline);
/// Has the other end hung up, with nothing left to read?
bool hung_up(const Fd& socket);

/// Waits for poll(2)'s `events`; false once the deadline has passed.
bool wait_for(const Fd& fd, short events, const Deadline& deadline);

}  // namespace psring::net
