#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include <psring/cli/app.h>

namespace psring::cli {

/// Writes the report of runs and comparisons to `out`, and returns the line that says where the file is. Throws data if
/// a folder holds no run or a file is damaged.
std::string write_report(const std::vector<std::filesystem::path>& folders, const std::filesystem::path& out,
                         const App& app);

}  // namespace psring::cli
