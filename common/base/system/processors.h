#pragma once

#include <cstddef>
#include <optional>

#include <sched.h>

namespace psring {

/// Returns the processors of this process's affinity mask; none if it is not known, as on hosts with more processors
/// than the set has room for.
cpu_set_t allowed_processors();

/// Returns how many processors this process may keep busy: those of its affinity mask, or as many whole ones as the CPU
/// quota of its control groups pays for (a container's limit), whichever is less. At least 1.
std::size_t usable_processors();

/// The same for a number of processors in the affinity mask and a quota.
std::size_t usable_processors(std::size_t allowed, std::optional<double> quota);

}  // namespace psring
