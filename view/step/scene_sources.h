#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <source_location>
#include <string>
#include <string_view>
#include <utility>

#include <psring/common/base/text/json.h>

namespace psring::view {

/// Returns the path from the repository's root: "worker/walk.cpp" of any build's "/…/worker/walk.cpp".
std::string_view repository_path(std::string_view file);
/// Returns "Walk::acquire" of a compiler's "void psring::worker::Walk::acquire(psring::worker::Pass)". A lambda has the
/// name of the function or class around it.
std::string short_function(std::string_view function);

/// The lines of source that a scene's events name, each once; docs/scene.md describes them.
class SceneSources {
 public:
  /// Returns the line's number in the list; nothing for an unknown line.
  std::optional<std::size_t> number(const std::source_location& source);
  Json list() const { return list_; }

 private:
  std::map<std::pair<std::string, std::uint_least32_t>, std::size_t> numbers_;  ///< by file and line
  Json list_ = Json::array();
};

}  // namespace psring::view
