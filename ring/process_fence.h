#pragma once

namespace psring::ring {

/// A fence between processes whose cost lies on one side (membarrier(2)). One side stores a and then reads b; the
/// other stores b, fences, and then reads a: one of them sees what the other stored, though the first has no fence of
/// its own. So whoever posts is quick, and whoever falls asleep pays.

/// Once a process, before it takes the quick side; harmless if repeated. False where the kernel has none or forbids it:
/// then both sides need a fence of their own.
bool join_process_fences();

/// Every process that joined has passed a full fence when this returns. REQUIRES: join_process_fences() was true.
void process_fence();

}  // namespace psring::ring
