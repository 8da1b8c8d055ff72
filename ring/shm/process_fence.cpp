#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <psring/ring/shm/process_fence.h>

namespace psring::ring {

bool join_process_fences() { return ::syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED, 0, 0) == 0; }

void process_fence() { ::syscall(SYS_membarrier, MEMBARRIER_CMD_GLOBAL_EXPEDITED, 0, 0); }

}  // namespace psring::ring
