#pragma once

#include <cstdint>
#include <string>

#include <psring/cli/app.h>
#include <psring/cli/check/exercise.h>
#include <psring/cli/train/entries.h>
#include <psring/common/base/text/json.h>
#include <psring/common/proc/options/table.h>

namespace psring::cli {

/// A job of a strategy with these options, as the command line would make it; 4 workers, synthetic data. Throws usage.
Entry exercise_job(const App& app, const std::string& strategy, options::Given given);

/// The model of the exercises about memory, and its parameters.
inline constexpr const char* kBookedModel = "gelu-mlp:dim=128,layers=4";
inline constexpr std::uint64_t kBookedElements = 4 * 128 * 128;

/// The bytes that a worker of such a job books: the prediction against which every run checks its ledger.
exercise::MemoryBytes booked_bytes(const App& app, const std::string& strategy, options::Given given);

/// Runs a job in the simulator of `psring step`, and returns its scene. Computing takes no time to speak of.
Json play_exercise(const App& app, const std::string& strategy, const options::Given& given);

/// The time of a steady step in the simulator, in seconds: the mean of steps 9 to 16 of the slowest worker.
double step_seconds(const App& app, const std::string& strategy, options::Given given);

}  // namespace psring::cli
