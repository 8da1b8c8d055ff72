#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <string_view>

namespace psring {

/// Returns the name of an enumerator, of names in the enumeration's order; "?" for a value that has none.
template <class Enum, std::size_t N>
constexpr std::string_view name_in(const std::array<std::string_view, N>& names, Enum value) {
  const auto place = static_cast<std::size_t>(value);
  return place < N ? names[place] : "?";
}

/// Returns the place of a name among the known ones. Throws usage, naming the flag and the known names.
std::size_t place_among(std::span<const std::string_view> known, const char* flag, std::string_view name);

}  // namespace psring
