#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>

#include <psring/cli/train/summary.h>

namespace psring::cli {

/// "went on after 2 losses, ...": for a run that lost processes and continued.
std::string losses_line(const Summary& summary);

/// "3 steps skipped ...": for a run that skipped steps.
std::string skipped_line(const Summary& summary);

/// The lines that `train` ends with: loss, accuracy or perplexity, speed; bytes beside the prediction; memory that
/// differs from it; the run folder.
std::string describe(const Summary& summary, const std::filesystem::path& folder);

}  // namespace psring::cli
