#pragma once

#include <cstdint>
#include <filesystem>

namespace psring::cli {

/// Removes the lines of steps that were repeated later, by all workers or (under ssp and asp) by one worker. Lines of
/// several processes may come in any order. Returns the first step.
std::uint64_t drop_repeated_steps(const std::filesystem::path& metrics, bool by_all);

}  // namespace psring::cli
