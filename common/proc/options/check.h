#pragma once

#include <cstddef>
#include <string_view>

#include <psring/common/proc/control/control_messages.h>
#include <psring/common/proc/options/option.h>

namespace psring::options {

/// Processes of one role: the coordinator tells each of all others, of both roles, in one list.
inline constexpr std::size_t kMostProcesses = net::kMaxListItems / 2;
/// Samples of a step: a sample's number has 32 bits.
inline constexpr std::size_t kMostSamples = std::size_t{1} << 32;
/// Steps, and epochs, of a job: the random numbers take both with 32 bits.
inline constexpr std::size_t kMostSteps = std::size_t{1} << 32;
/// Threads of one process.
inline constexpr std::size_t kMostThreads = 1024;
inline constexpr std::size_t kMostLookahead = 16;  ///< of --table-lookahead

/// Throws usage, naming the flag, if the value is 0 or above `most`.
void check_count(std::string_view flag, std::size_t value, std::size_t most);

/// Throws usage, naming the flag, if the value is not finite in f32, in which updates are computed, or becomes 0 there.
void check_f32(std::string_view flag, double value);

/// Throws usage, naming the flag, if the value in seconds is below `least` or above a year, which the clock's
/// arithmetic cannot hold.
void check_duration(std::string_view flag, double value, double least);

/// Has the job another value of the option than `plain`? An option without a value never differs.
bool differs(const JobOptions& job, const JobOptions& plain, const Option& option);

/// Throws usage, naming the flag, if an option of the job has another value than in `plain`, and no effect in a job
/// whose workers are a user's programs.
void check_in_programs(const JobOptions& job, const JobOptions& plain);

/// Checks the job's value of an option. Throws usage: "--flag: expected ..., got ...".
void check(const JobOptions& job, const Option& option);

}  // namespace psring::options
