#pragma once

#include <concepts>
#include <cstdint>
#include <limits>
#include <string_view>
#include <vector>

#include <psring/common/base/text/error.h>
#include <psring/common/base/text/json.h>

namespace psring {

/// Reads a whole number from an untrusted JSON value. Json::get changes negative numbers, fractions and numbers that
/// are too large. Throws data with a line that begins with `context` and the name.
template <std::unsigned_integral T>
T whole_number(const Json& value, std::string_view context, std::string_view name) {
  constexpr auto kMost = std::numeric_limits<T>::max();
  if (value.is_number_unsigned())
    if (const auto number = value.get<std::uint64_t>(); number <= kMost) return static_cast<T>(number);
  fail(ErrorKind::data, "{}: '{}': expected a whole number from 0 to {}, got {}", context, name, kMost,
       value.is_number() ? value.dump() : value.type_name());
}

/// The same for the value of an object's key. Throws JsonError if the key is missing.
template <std::unsigned_integral T>
T whole_number_at(const Json& object, std::string_view context, const char* key) {
  return whole_number<T>(object.at(key), context, key);
}

/// The same for a key whose value is a list of numbers.
template <std::unsigned_integral T>
std::vector<T> whole_numbers_at(const Json& object, std::string_view context, const char* key) {
  std::vector<T> numbers;
  const Json& list = object.at(key);
  if (!list.is_array()) fail(ErrorKind::data, "{}: '{}': expected a list, got {}", context, key, list.type_name());
  for (const Json& value : list) numbers.push_back(whole_number<T>(value, context, key));
  return numbers;
}

}  // namespace psring
