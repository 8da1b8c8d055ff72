#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include <psring/common/base/deadline.h>
#include <psring/common/device/arena.h>
#include <psring/common/net/channel.h>
#include <psring/common/net/shm/gate.h>

namespace psring::net {

using ShmOptions = UnixGate::Options;

/// Returns a unique name for this process to listen at. Clients need the name to connect.
std::string shm_name(std::uint64_t job, Peer listener);

/// Listens for clients of this host. A client connects to the local socket `name`, proves the job's key, and then
/// communicates through shared memory. If a client's socket closes, try_receive first returns the client's remaining
/// messages, then throws peer_lost once. Messages of clients point into the clients' arenas; see ShmLink. Clients that
/// have not proved the key stay as UnixGate says. Throws usage if the name is taken.
std::unique_ptr<Channel> listen_shm(const ShmOptions& options, const std::string& name);

/// Connects to the servers that listen at these names; all links are open on return. Payloads in `arena` are sent
/// without a copy, and answers may be stored into `arena` (FrameHeader::dest, Arena::mark). REQUIRES: the arena is
/// shared, and outlives the channel and its messages.
/// Throws peer_lost if a server does not listen, timeout, unauthorised, protocol.
std::unique_ptr<Channel> connect_shm(const ShmOptions& options, Arena& arena, const std::map<Peer, std::string>& names,
                                     const Deadline& deadline);

}  // namespace psring::net
