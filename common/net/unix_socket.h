#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <sys/types.h>

#include <psring/common/base/deadline.h>
#include <psring/common/base/system/fd.h>

namespace psring::net {

/// Packets and file descriptors between processes of one host and network namespace, over SOCK_SEQPACKET sockets with
/// abstract names, which leave no file behind. These sockets open links; tensors do not use them.

inline constexpr std::size_t kMaxPacketBytes = 1024;
inline constexpr std::size_t kMaxPacketFds = 4;

struct Packet {
  std::vector<std::byte> bytes;
  std::vector<Fd> fds;
};

/// Throws usage if the name is taken or too long.
Fd listen_unix(const std::string& name);
/// Returns the next client, or nothing. Hangs up on clients of other users.
std::optional<Fd> accept_unix(const Fd& listener);
/// Throws peer_lost if no process listens, timeout, and unauthorised if the listener belongs to another user.
Fd connect_unix(const std::string& name, const Deadline& deadline);

/// Returns the id of the process that connected the other end; 0 if the system does not know it.
pid_t process_behind(const Fd& socket);

/// Never waits. Throws peer_lost if the other end is gone or does not read.
void send_packet(const Fd& socket, std::span<const std::byte> bytes, std::span<const int> fds = {});
/// Returns the next packet, or nothing. Throws peer_lost if the other end is gone, protocol if the packet is too large.
std::optional<Packet> receive_packet(const Fd& socket);
/// Waits for a packet. Throws timeout.
Packet receive_packet(const Fd& socket, const Deadline& deadline);
/// Returns whether the other end has hung up, with no packet left to read.
bool hung_up(const Fd& socket);

/// Waits for poll(2)'s `events`. Returns false once the deadline has passed.
bool wait_for(const Fd& fd, short events, const Deadline& deadline);

}  // namespace psring::net
