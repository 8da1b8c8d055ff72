#include <immintrin.h>

#include <psring/common/base/half.h>

namespace psring {

Half::Half(float value) : bits(_cvtss_sh(value, _MM_FROUND_TO_NEAREST_INT)) {}
Half::operator float() const { return _cvtsh_ss(bits); }

void widen(const Half* from, float* to, std::size_t count) {
  std::size_t i = 0;
  for (; i + 8 <= count; i += 8)
    _mm256_storeu_ps(to + i, _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i))));
  for (; i < count; ++i) to[i] = static_cast<float>(from[i]);
}

void narrow(const float* from, Half* to, std::size_t count) {
  std::size_t i = 0;
  for (; i + 8 <= count; i += 8)
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to + i),
                     _mm256_cvtps_ph(_mm256_loadu_ps(from + i), _MM_FROUND_TO_NEAREST_INT));
  for (; i < count; ++i) to[i] = Half(from[i]);
}

}  // namespace psring
