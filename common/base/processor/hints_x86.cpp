#include <immintrin.h>

#include <psring/common/base/processor/hints.h>

namespace psring {

void spin_pause() { _mm_pause(); }

// The built-in function is `prefetchw` only where the compiler may use PRFCHW, which x86-64-v3 leaves out; a processor
// without PRFCHW does nothing here.
void prefetch_to_write(const std::byte* begin, std::size_t bytes) {
  for (std::size_t at = 0; at < bytes; at += 64) asm volatile("prefetchw %0" : : "m"(begin[at]));
}

}  // namespace psring
