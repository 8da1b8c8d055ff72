#include <string>
#include <string_view>
#include <system_error>

#include <psring/cli/check/start.h>
#include <psring/common/base/error.h>
#include <psring/common/base/file.h>

namespace psring::cli {
namespace {

namespace fs = std::filesystem;

/// Replaces each link [words](../path) by: words (path from the source tree's root).
std::string without_outer_links(std::string_view text, const fs::path& folder) {
  std::string result;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t open = text.find('[', at);
    const std::size_t middle = text.find("](../", open);
    const std::size_t end = text.find(')', middle);
    if (end == std::string_view::npos) return result.append(text.substr(at));
    // An earlier bracket belongs to a link within the folder, or to no link.
    const std::size_t words = text.rfind('[', middle);
    const fs::path target = folder / text.substr(middle + 2, end - middle - 2);
    result.append(text.substr(at, words - at)).append(text.substr(words + 1, middle - words - 1));
    result.append(" (").append(target.lexically_normal().string()).append(")");
    at = end + 1;
  }
  return result;
}

}  // namespace

void copy_exercise(const Exercise& exercise, const fs::path& folder) {
  std::error_code error;
  if (fs::exists(folder, error))
    fail(ErrorKind::usage, "--start {}: it exists already; name a new folder", folder.string());
  fs::create_directories(folder, error);
  if (error) fail(ErrorKind::data, "{}: cannot create the folder: {}", folder.string(), error.message());
  for (const view::SourceText& each : exercise_texts()) {
    const fs::path path(each.path);
    if (path.parent_path() != exercise.folder()) continue;
    const bool page = path.extension() == ".md";
    write_whole((folder / path.filename()).string(),
                page ? without_outer_links(each.text, path.parent_path()) : std::string(each.text));
  }
}

}  // namespace psring::cli
