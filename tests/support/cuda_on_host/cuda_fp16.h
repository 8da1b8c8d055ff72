#pragma once

// The toolkit's 16-bit types, as far as they are used; see cuda_runtime.h.

#include <cuda_runtime.h>

#include <psring/common/base/half.h>

struct __half {
  std::uint16_t bits;
};
inline float __half2float(__half x) {
  psring::Half number;
  number.bits = x.bits;
  return static_cast<float>(number);
}
inline __half __float2half_rn(float x) { return {psring::Half(x).bits}; }
