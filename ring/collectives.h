#pragma once

#include <cstddef>
#include <span>

#include <psring/ring/process_group.h>

namespace psring::ring {

// Collectives that are built from a group's own operations. All wait until they are complete.

/// The root's vector becomes the reduction of all ranks' vectors; the other vectors are undefined afterwards.
void reduce_to(ProcessGroup& group, Vector data, const ReduceOp& op, std::size_t root);

/// `out` of rank r becomes the reduction of all ranks' r-th part of `in`. REQUIRES: in has size() times out's elements.
void reduce_scatter(ProcessGroup& group, Vector in, Vector out, const ReduceOp& op);
/// The same with parts of these sizes; `out` has sizes[rank()] elements.
void reduce_scatter(ProcessGroup& group, Vector in, Vector out, std::span<const std::size_t> sizes, const ReduceOp& op);

/// Every rank's `out` becomes the concatenation of all ranks' `in`, in rank order. REQUIRES: out has size() times in's
/// elements.
void all_gather(ProcessGroup& group, ConstVector in, Vector out);
/// The same with vectors of these sizes; `in` has sizes[rank()] elements.
void all_gather(ProcessGroup& group, ConstVector in, Vector out, std::span<const std::size_t> sizes);

/// The root's `out` becomes the concatenation of all ranks' `in`, in rank order; other ranks may pass an empty `out`.
void gather(ProcessGroup& group, ConstVector in, Vector out, std::size_t root);
/// Rank r's `out` becomes the r-th part of the root's `in`; other ranks may pass an empty `in`.
void scatter(ProcessGroup& group, ConstVector in, Vector out, std::size_t root);
/// The r-th part of `in` goes to rank r, and becomes this rank's part of that rank's `out`.
void all_to_all(ProcessGroup& group, ConstVector in, Vector out);

}  // namespace psring::ring
