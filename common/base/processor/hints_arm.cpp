#include <psring/common/base/processor/hints.h>

namespace psring {

// `isb` waits for some tens of cycles, as x86's `pause` does; `yield` is no more than a nop on most processors.
void spin_pause() { asm volatile("isb" ::: "memory"); }

void prefetch_to_write(const std::byte* begin, std::size_t bytes) {
  for (std::size_t at = 0; at < bytes; at += 64) __builtin_prefetch(begin + at, 1);
}

}  // namespace psring
