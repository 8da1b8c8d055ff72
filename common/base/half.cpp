#include <psring/common/base/half.h>

namespace psring {

void widen(const BFloat16* from, float* to, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) to[i] = static_cast<float>(from[i]);
}

void narrow(const float* from, BFloat16* to, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) to[i] = BFloat16(from[i]);
}

}  // namespace psring
