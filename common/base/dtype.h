#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace psring {

/// Element types. The numbers are those in frame headers.
enum class DType : std::uint8_t { f32 = 0, f64 = 1, f16 = 2, bf16 = 3, i8 = 4, u8 = 5, i32 = 6, i64 = 7 };

inline constexpr std::uint8_t kDTypes = 8;

constexpr std::size_t size_bytes(DType type) {
  switch (type) {
    case DType::f64:
    case DType::i64:
      return 8;
    case DType::f32:
    case DType::i32:
      return 4;
    case DType::f16:
    case DType::bf16:
      return 2;
    case DType::i8:
    case DType::u8:
      return 1;
  }
  return 0;
}

/// Returns "f32", "bf16" ...
std::string_view name_of(DType type);
/// Returns the type with this name. Throws usage, naming the flag, if no type has the name.
DType parse_dtype(const char* flag, const std::string& name);

}  // namespace psring
