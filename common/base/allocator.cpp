#include <malloc.h>

#include <psring/common/base/allocator.h>

namespace psring {

void tune_allocator() {
  // The largest that glibc takes: larger blocks are mapped and unmapped each time. Frames end at 16 MiB.
  mallopt(M_MMAP_THRESHOLD, 32 << 20);
  // Setting either switches glibc's own adjusting off; the top of a heap is trimmed above this only.
  mallopt(M_TRIM_THRESHOLD, 1 << 30);
}

}  // namespace psring
