#include <array>

#include <psring/common/base/dtype.h>
#include <psring/common/base/text/error.h>

namespace psring {
namespace {

constexpr std::array<std::string_view, kDTypes> kNames = {"f32", "f64", "f16", "bf16", "i8", "u8", "i32", "i64"};

}  // namespace

std::string_view name_of(DType type) { return kNames[static_cast<std::size_t>(type)]; }

DType parse_dtype(const char* flag, const std::string& name) {
  std::string known;
  for (std::size_t i = 0; i < kNames.size(); ++i) {
    if (name == kNames[i]) return static_cast<DType>(i);
    known += (i == 0 ? "" : ", ") + std::string(kNames[i]);
  }
  fail(ErrorKind::usage, "{}: expected one of {}, got '{}'", flag, known, name);
}

}  // namespace psring
