#pragma once

namespace psring::ring {

/// A memory fence between processes, with all of its cost on one side (membarrier(2)). One side stores a and then reads
/// b; the other side stores b, calls process_fence, and then reads a. At least one side sees the other's store,
/// although the first side has no fence of its own. So a rank that posts is fast, and a rank that falls asleep pays.

/// Call once in each process before it takes the fast side; harmless if repeated. Returns false if the kernel lacks or
/// forbids membarrier: then both sides need an ordinary fence.
bool join_process_fences();

/// Every process that joined has passed a full fence when this returns. REQUIRES: join_process_fences() was true.
void process_fence();

}  // namespace psring::ring
