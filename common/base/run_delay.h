#pragma once

#include <optional>

namespace psring {

/// Seconds for which this process's threads, all together, were ready to run but had no processor, since they began:
/// the second field of /proc/self/task/*/schedstat. Nothing where the kernel does not count it.
std::optional<double> run_delay_seconds();

}  // namespace psring
