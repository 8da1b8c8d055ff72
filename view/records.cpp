#include <fstream>
#include <sstream>
#include <string>

#include <psring/common/base/error.h>
#include <psring/view/records.h>

namespace psring::view {

namespace fs = std::filesystem;

std::optional<Json> read_object(const fs::path& file) {
  std::error_code none;
  if (!fs::exists(file, none)) return std::nullopt;
  std::ifstream in(file, std::ios::binary);
  std::ostringstream content;
  if (!(content << in.rdbuf())) fail(ErrorKind::data, "{}: cannot be read, or is empty", file.string());
  const std::string text = content.str();
  try {
    Json json = Json::parse(text);
    if (!json.is_object()) fail(ErrorKind::data, "{}:1: expected a JSON object", file.string());
    return json;
  } catch (const JsonError& error) {
    fail(ErrorKind::data, "{}:{}: is not JSON", file.string(), error.line());
  }
}

void for_each_line(const fs::path& file, const std::function<void(const Json&)>& body) {
  std::ifstream in(file, std::ios::binary);
  std::size_t number = 0;
  for (std::string line; std::getline(in, line);) {
    ++number;
    if (in.eof()) return;
    const std::optional<Json> json = Json::try_parse(line);
    if (!json || !json->is_object()) fail(ErrorKind::data, "{}:{}: is not a JSON object", file.string(), number);
    try {
      body(*json);
    } catch (const JsonError& error) {
      fail(ErrorKind::data, "{}:{}: is not a line that psring writes ({})", file.string(), number, error.what());
    }
  }
}

}  // namespace psring::view
