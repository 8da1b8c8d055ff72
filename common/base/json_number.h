#pragma once

#include <concepts>
#include <cstdint>
#include <limits>
#include <string_view>
#include <vector>

#include <psring/common/base/error.h>

namespace psring {

/// A whole number out of a JSON value (of nlohmann's) that comes from outside: what its own conversions make of a
/// negative number, a fraction or one that is too large is another number, or undefined. Throws data, which begins with
/// `where` and the name.
template <std::unsigned_integral T, class Json>
T whole_number(const Json& value, std::string_view where, std::string_view name) {
  constexpr auto kMost = std::numeric_limits<T>::max();
  if (value.is_number_unsigned())
    if (const auto number = value.template get<std::uint64_t>(); number <= kMost) return static_cast<T>(number);
  fail(ErrorKind::data, "{}: '{}': expected a whole number from 0 to {}, got {}", where, name, kMost,
       value.is_number() ? value.dump() : value.type_name());
}

/// Of an object's key; what it lacks is an error of nlohmann's.
template <std::unsigned_integral T, class Json>
T whole_number_at(const Json& object, std::string_view where, const char* key) {
  return whole_number<T>(object.at(key), where, key);
}

/// Of a key that has a list of them.
template <std::unsigned_integral T, class Json>
std::vector<T> whole_numbers_at(const Json& object, std::string_view where, const char* key) {
  std::vector<T> numbers;
  const Json& list = object.at(key);
  if (!list.is_array()) fail(ErrorKind::data, "{}: '{}': expected a list, got {}", where, key, list.type_name());
  for (const Json& value : list) numbers.push_back(whole_number<T>(value, where, key));
  return numbers;
}

}  // namespace psring
