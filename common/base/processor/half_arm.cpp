#include <cstring>

#include <psring/common/base/half.h>

namespace psring {
namespace {

/// The processor's own type of 16 bits; it rounds to nearest, ties to even.
__fp16 native(Half value) {
  __fp16 number;
  std::memcpy(&number, &value.bits, sizeof number);
  return number;
}

}  // namespace

Half::Half(float value) {
  const auto number = static_cast<__fp16>(value);
  std::memcpy(&bits, &number, sizeof bits);
}
Half::operator float() const { return native(*this); }

void widen(const Half* from, float* to, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) to[i] = native(from[i]);
}

void narrow(const float* from, Half* to, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) to[i] = Half(from[i]);
}

}  // namespace psring
