#pragma once

#include <optional>

namespace psring {

/// Returns the seconds for which all threads of this process together were runnable but had no processor, since they
/// started: the second field of /proc/self/task/*/schedstat. Empty if the kernel does not count them.
std::optional<double> run_delay_seconds();

/// Returns the seconds for which all threads of this process together had a processor.
double processor_seconds();

}  // namespace psring
