#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace psring::cli {

struct ConfigEntry {
  std::string key;
  std::string value;     ///< a list's items are joined by commas
  std::size_t line = 0;  ///< from 1
};

/// Reads a file of KEY = VALUE lines: TOML without tables, whose values may also stand bare (`model = mlp:4-2`).
///
///   line  := [key '=' value] ['#' comment]
///   value := item | '[' [item {',' item}] ']'
///   item  := '"' text '"' | "'" text "'" | bare text without quotes and '#'
///
/// Throws data where it is no file that can be read, and usage where a line is of another form or a key stands
/// twice; both name the file, and usage the line.
std::vector<ConfigEntry> read_config_file(const std::string& file);

/// "--config FILE, line 3": what goes in front of an error about a line.
std::string config_line(const std::string& file, std::size_t line);

}  // namespace psring::cli
