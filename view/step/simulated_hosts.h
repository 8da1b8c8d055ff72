#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include <psring/common/net/transport.h>
#include <psring/ring/inner_group.h>
#include <psring/ring/link/options.h>

namespace psring::view {

/// A simulated group, and the inner group that all its messages pass, which goes on while the rank computes.
struct SimulatedGroup {
  std::unique_ptr<ring::ProcessGroup> group;
  ring::InnerGroup* messages = nullptr;  ///< part of the group
};

/// A hierarchical group as ring::RingLinks makes it over several hosts, except that messages stand for the shared
/// memory within each host. `host_of`: each rank's host. REQUIRES: the transport outlives the group.
SimulatedGroup make_simulated_hosts(net::Transport& transport, std::size_t rank,
                                    const std::vector<std::size_t>& host_of, const ring::LinkOptions& options);

}  // namespace psring::view
