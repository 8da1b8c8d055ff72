#pragma once

#include <cstddef>

#include <psring/common/proc/job.h>

namespace psring::bench {

/// A synchronous step waits for the slowest of its n workers. Both functions return the expected time of the slowest,
/// relative to the time that a worker needs on average.

/// n independent normal values of mean 1 and standard deviation `deviation` (Blom, 1958).
double expected_slowest(std::size_t n, double deviation);

/// The workers of a job with the faults `slow` and `jitter`: worker w's time is uniform between s (1 - j) and s (1 +
/// j). The expected maximum is the integral of 1 - P(all are faster than x) over x. 1 without such faults.
double expected_slowest(const JobOptions& job);

}  // namespace psring::bench
