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

/// Reads a file of KEY = VALUE lines: TOML without tables, in which text values need no quotes (`model = mlp:4-2`).
///
///   line  := [key '=' value] ['#' comment]
///   value := item | '[' [item {',' item}] ']'
///   item  := '"' text '"' | "'" text "'" | bare text without quotes and '#'
///
/// Throws data if the file cannot be read, and usage if a line has another form or a key occurs twice. Both errors name
/// the file; usage also names the line.
std::vector<ConfigEntry> read_config_file(const std::string& file);

/// Returns "--config FILE, line 3", the context of an error about a line.
std::string config_line(const std::string& file, std::size_t line);

}  // namespace psring::cli
