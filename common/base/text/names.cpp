#include <algorithm>

#include <fmt/ranges.h>

#include <psring/common/base/text/error.h>
#include <psring/common/base/text/names.h>

namespace psring {

std::size_t place_among(std::span<const std::string_view> known, const char* flag, std::string_view name) {
  const auto found = std::ranges::find(known, name);
  if (found == known.end())
    fail(ErrorKind::usage, "{}: expected one of {}, got '{}'", flag, fmt::join(known, ", "), name);
  return static_cast<std::size_t>(found - known.begin());
}

}  // namespace psring
