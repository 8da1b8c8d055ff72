#pragma once

#include <filesystem>
#include <string>

namespace psring::view {

/// Returns the name of the folder that `compare` makes for a row with this label, such as "ps n=4 s=1".
std::string folder_name(std::string label);

/// Returns the folder of run `run` (from 0) of a comparison's row: the row's folder, or run-1, run-2, ... in it if
/// every row has several runs.
std::filesystem::path run_folder(const std::filesystem::path& comparison, const std::string& label, std::size_t run);

}  // namespace psring::view
