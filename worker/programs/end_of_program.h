#pragma once

#include <psring/common/proc/role.h>

namespace psring::worker {

/// Tells the job that this worker is done, with its report. The worker's last message.
void end_of_program(Membership& member);

}  // namespace psring::worker
