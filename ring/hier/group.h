#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include <psring/ring/group_options.h>
#include <psring/ring/inner_group.h>

namespace psring::ring {

/// A group over several hosts, some with more than one rank: shared memory within a host, messages between hosts. An
/// all-reduce is a reduce-scatter within each host, an all-reduce of each rank's cut between hosts, and an all-gather
/// within each host (hierarchical all-reduce; after Thakur, Rabenseifner, Gropp, "Optimization of Collective
/// Communication Operations in MPICH"); Hierarchy describes the other collectives. With h hosts, each host sends and
/// receives 2(h-1)/h * M bytes over a ring, however many ranks it has.
///
/// Sums run within each host in rank order, then over the hosts in the order of the links' plan. The order is the same
/// at every run, and all ranks hold the same bits, but not the bits of one process that adds in rank order. A 16-bit
/// type is rounded after each host's sum. A mean is divided once, at the end.
///
/// `host`: the shared memory of this rank's host; `links`: messages between all ranks. No other object uses them.
/// `host_of`: each rank's host; `host` has the ranks of one host, in order. An error in one of them is reported in
/// both. `clock`: the clock of waits; null: the system's clock.
std::unique_ptr<ProcessGroup> make_hierarchical_group(std::unique_ptr<InnerGroup> host,
                                                      std::unique_ptr<InnerGroup> links, std::size_t rank,
                                                      const std::vector<std::size_t>& host_of, GroupOptions options,
                                                      const Clock* clock = nullptr);

}  // namespace psring::ring
