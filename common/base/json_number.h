#pragma once

#include <concepts>
#include <cstdint>
#include <limits>
#include <string_view>
#include <vector>

#include <psring/common/base/error.h>

namespace psring {

/// Reads a whole number from an untrusted JSON value of nlohmann's library. The library's own conversions change
/// negative numbers, fractions and numbers that are too large, or are undefined for them. Throws data with a line that
/// begins with `context` and the name.
template <std::unsigned_integral T, class Json>
T whole_number(const Json& value, std::string_view context, std::string_view name) {
  constexpr auto kMost = std::numeric_limits<T>::max();
  if (value.is_number_unsigned())
    if (const auto number = value.template get<std::uint64_t>(); number <= kMost) return static_cast<T>(number);
  fail(ErrorKind::data, "{}: '{}': expected a whole number from 0 to {}, got {}", context, name, kMost,
       value.is_number() ? value.dump() : value.type_name());
}

/// The same for the value of an object's key. If the key is missing, nlohmann's library throws its own error.
template <std::unsigned_integral T, class Json>
T whole_number_at(const Json& object, std::string_view context, const char* key) {
  return whole_number<T>(object.at(key), context, key);
}

/// The same for a key whose value is a list of numbers.
template <std::unsigned_integral T, class Json>
std::vector<T> whole_numbers_at(const Json& object, std::string_view context, const char* key) {
  std::vector<T> numbers;
  const Json& list = object.at(key);
  if (!list.is_array()) fail(ErrorKind::data, "{}: '{}': expected a list, got {}", context, key, list.type_name());
  for (const Json& value : list) numbers.push_back(whole_number<T>(value, context, key));
  return numbers;
}

}  // namespace psring
