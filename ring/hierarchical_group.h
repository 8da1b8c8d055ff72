#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include <psring/ring/inner_group.h>
#include <psring/ring/shm_group.h>

namespace psring::ring {

/// A group of ranks of several hosts, some of which share one: shared memory inside a host, messages between hosts. An
/// all-reduce is a reduce-scatter in each host, an all-reduce between hosts of each rank's cut, and an all-gather in
/// each host (after Thakur, Rabenseifner, Gropp, "Optimization of Collective Communication Operations in MPICH", and
/// what MPI libraries call hierarchical); see Hierarchy for the others. With h hosts each host sends and receives
/// 2(h-1)/h * M over a ring, however many ranks it has.
///
/// Sums run in each host in rank order, then over the hosts in the order of the links' plan: the same at every run, all
/// ranks hold the same bits, but not those of one process that adds in rank order. A type of 16 bits is rounded after
/// each host's sum. A mean is divided once, at the end.
///
/// `host`: the shared memory of this rank's host; `links`: messages between all ranks; both are the group's alone.
/// `host_of`: each rank's host; those of one host have its ranks in order. Errors in either are told in both.
std::unique_ptr<ProcessGroup> make_hierarchical_group(std::unique_ptr<InnerGroup> host,
                                                      std::unique_ptr<InnerGroup> links, std::size_t rank,
                                                      const std::vector<std::size_t>& host_of, GroupOptions options);

}  // namespace psring::ring
