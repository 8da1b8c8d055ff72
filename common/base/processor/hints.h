#pragma once

#include <cstddef>

namespace psring {

/// Tells the processor that this thread spins: it then leaves more of the core to the thread that it waits for.
void spin_pause();

/// Begins to fetch memory that will be written, so that no other processor keeps its lines.
void prefetch_to_write(const std::byte* begin, std::size_t bytes);

}  // namespace psring
