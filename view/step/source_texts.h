#pragma once

#include <span>
#include <string_view>

namespace psring::view {

/// A source of psring whose lines scenes show.
struct SourceText {
  std::string_view path;  ///< from the repository's root
  std::string_view text;
};

/// Returns the sources that the build has embedded (view/CMakeLists.txt).
std::span<const SourceText> source_texts();

}  // namespace psring::view
