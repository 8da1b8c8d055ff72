#pragma once

#include <memory>
#include <string>
#include <vector>

#include <psring/common/base/deadline.h>
#include <psring/common/base/fd.h>
#include <psring/common/net/handshake.h>
#include <psring/ring/shm_memory.h>

namespace psring::ring {

/// How processes of one host come to share memory: each passes its arena to the first of them over a local socket,
/// together with its proof of the job's key, and gets the control file and everybody's arena back.
/// `peers`: who takes part, by rank in the world; `self` is one of them. `listener` is the first one's, `name` what
/// it listens at. Throws unauthorised, protocol, timeout, peer_lost.
ShmWorld meet_in_shared_memory(const net::JobKey& key, net::Identity self, const std::vector<net::Peer>& peers,
                               const Fd& listener, const std::string& name, std::shared_ptr<Arena> arena,
                               const Deadline& deadline);

}  // namespace psring::ring
