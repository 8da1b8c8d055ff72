#pragma once

// The toolkit's 16-bit types, as far as they are used; see cuda_runtime.h.

#include <cuda_runtime.h>

#include <psring/common/base/half.h>

struct __nv_bfloat16 {
  std::uint16_t bits;
};
inline float __bfloat162float(__nv_bfloat16 x) {
  psring::BFloat16 number;
  number.bits = x.bits;
  return static_cast<float>(number);
}
inline __nv_bfloat16 __float2bfloat16_rn(float x) { return {psring::BFloat16(x).bits}; }
