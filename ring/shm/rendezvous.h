#pragma once

#include <memory>
#include <string>
#include <vector>

#include <psring/common/base/deadline.h>
#include <psring/common/base/system/fd.h>
#include <psring/common/net/handshake.h>
#include <psring/common/net/refusals.h>
#include <psring/ring/shm/world.h>

namespace psring::ring {

/// Lets the processes of one host share memory. Each process passes its arena to the first one over a local socket,
/// together with its proof of the job's key, and receives the control file and the arenas of all processes.
/// `peers`: the processes by rank in the world, `self` among them. `listener`: the first process's; `name`: the address
/// of that listener; `refusals` counts the connections that the first process refuses. Throws unauthorised, protocol,
/// timeout, peer_lost.
ShmWorld meet_in_shared_memory(const net::JobKey& key, net::Identity self, const std::vector<net::Peer>& peers,
                               Fd listener, const std::string& name, std::shared_ptr<Arena> arena,
                               const Deadline& deadline, net::Refusals* refusals = nullptr);

}  // namespace psring::ring
