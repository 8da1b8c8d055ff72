#pragma once

#include <cstddef>
#include <optional>

namespace psring {

/// Returns how many processors this process may keep busy: those of its affinity mask, or as many whole ones as the CPU
/// quota of its control groups pays for (a container's limit), whichever is less. At least 1.
std::size_t usable_processors();

/// The same for a number of processors in the affinity mask and a quota.
std::size_t usable_processors(std::size_t allowed, std::optional<double> quota);

}  // namespace psring
