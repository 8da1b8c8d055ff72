#pragma once

#include <span>
#include <string_view>

namespace psring::view {

/// A text file of the repository that the build has embedded.
struct SourceText {
  std::string_view path;  ///< from the repository's root
  std::string_view text;
};

/// Returns the sources whose lines scenes show (view/CMakeLists.txt).
std::span<const SourceText> source_texts();

}  // namespace psring::view
