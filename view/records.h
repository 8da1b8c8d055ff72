#pragma once

#include <filesystem>
#include <functional>
#include <optional>

#include <psring/common/base/text/json.h>

namespace psring::view {

/// Returns the content of a JSON file, or nothing if the file does not exist. Throws data, naming the file and the
/// line, if the content is not a JSON object.
std::optional<Json> read_object(const std::filesystem::path& file);

/// Calls `body` with the object of every line of a file of JSON lines; a missing file has none. The last line is left
/// out if it has no end: the process that wrote it was killed, or still writes. Throws data, naming the file and the
/// line, if a line is not a JSON object or `body` does not find in it what it expects.
void for_each_line(const std::filesystem::path& file, const std::function<void(const Json&)>& body);

}  // namespace psring::view
