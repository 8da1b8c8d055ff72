#include <malloc.h>

#include <psring/common/base/allocator.h>

namespace psring {

void tune_allocator() {
  // The largest threshold that glibc accepts. glibc maps and unmaps larger blocks anew each time; frames have at most
  // 16 MiB.
  mallopt(M_MMAP_THRESHOLD, 32 << 20);
  // Setting either option stops glibc from adjusting both by itself. The heap's top is returned to the system only
  // above this size.
  mallopt(M_TRIM_THRESHOLD, 1 << 30);
}

}  // namespace psring
