#include <array>

#include <psring/common/base/dtype.h>
#include <psring/common/base/text/names.h>

namespace psring {
namespace {

constexpr std::array<std::string_view, kDTypes> kNames = {"f32", "f64", "f16", "bf16", "i8", "u8", "i32", "i64"};

}  // namespace

std::string_view name_of(DType type) { return kNames[static_cast<std::size_t>(type)]; }

DType parse_dtype(const char* flag, const std::string& name) {
  return static_cast<DType>(place_among(kNames, flag, name));
}

}  // namespace psring
