#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include <psring/common/base/deadline.h>
#include <psring/common/device/arena.h>
#include <psring/common/net/channel.h>
#include <psring/common/net/handshake.h>
#include <psring/common/net/key.h>
#include <psring/common/net/refusals.h>

namespace psring::net {

struct ShmOptions {
  JobKey key;
  Identity self;
  Nanoseconds handshake_timeout = std::chrono::seconds(5);  ///< what a client has, at the listening side
  Refusals* refusals = nullptr;                             ///< counts connections that come to nothing
};

/// A name to listen at, for this process alone: told to those who should connect.
std::string shm_name(std::uint64_t job, Peer listener);

/// Shared memory with every client of this host that connects to the local socket `name` and proves the
/// job's key. A client whose socket closes is lost: try_receive first gives what it had sent, then throws
/// peer_lost, once. Messages of clients point into their arenas; see ShmLink.
/// Throws usage where the name is taken.
std::unique_ptr<Channel> listen_shm(const ShmOptions& options, const std::string& name);

/// Shared memory with the servers that listen at these names; all links are open on return. What is sent
/// from `arena` is not copied, and answers may be stored into it (FrameHeader::dest, Arena::mark).
/// REQUIRES: the arena is shared, and outlives the channel and its messages.
/// Throws peer_lost where nobody listens, timeout, unauthorised, protocol.
std::unique_ptr<Channel> connect_shm(const ShmOptions& options, Arena& arena, const std::map<Peer, std::string>& names,
                                     const Deadline& deadline);

}  // namespace psring::net
