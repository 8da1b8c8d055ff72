#include <string>

#include <psring/common/base/system/file.h>
#include <psring/common/base/text/error.h>
#include <psring/common/base/text/text.h>
#include <psring/view/records.h>

namespace psring::view {

namespace fs = std::filesystem;

std::optional<Json> read_object(const fs::path& file) {
  const std::optional<std::string> text = read_whole_if_present(file.string());
  if (!text) return std::nullopt;
  if (text->empty()) fail(ErrorKind::data, "{}: is empty", file.string());
  try {
    Json json = Json::parse(*text);
    if (!json.is_object()) fail(ErrorKind::data, "{}:1: expected a JSON object", file.string());
    return json;
  } catch (const JsonError& error) {
    fail(ErrorKind::data, "{}:{}: is not JSON", file.string(), error.line());
  }
}

void for_each_line(const fs::path& file, const std::function<void(const Json&)>& body) {
  LineReader lines(file.string(), LineReader::IfMissing::no_lines);
  std::size_t number = 0;
  for (std::string line; lines.next(line);) {
    ++number;
    if (!lines.had_end()) return;
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
