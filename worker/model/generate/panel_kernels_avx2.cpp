#include <immintrin.h>

#include <psring/worker/model/generate/panel_loops.h>

namespace psring::worker {
namespace {

struct Avx2 {
  using Vector = __m256;
  static constexpr std::size_t kWidth = 8;
  static constexpr std::size_t kVectorsOfManyRows = 2;  // 6 rows x 2 vectors fill 12 of 16 registers

  static Vector load(const float* p) { return _mm256_loadu_ps(p); }
  static void store(float* p, Vector v) { _mm256_storeu_ps(p, v); }
  static Vector broadcast(float x) { return _mm256_set1_ps(x); }
  static Vector multiply(Vector a, Vector b) { return _mm256_mul_ps(a, b); }
  static Vector multiply_add(Vector a, Vector b, Vector c) { return _mm256_fmadd_ps(a, b, c); }
  static Vector negate(Vector a) { return _mm256_xor_ps(a, _mm256_set1_ps(-0.0F)); }
  static __m128i eight_bytes(const void* p) { return _mm_loadl_epi64(static_cast<const __m128i*>(p)); }
  static Vector load_int8(const std::int8_t* p) { return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(eight_bytes(p))); }
  static Vector load_uint8(const std::uint8_t* p) { return _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(eight_bytes(p))); }

  /// Turns halves of bytes into floats, plus `offset`.
  struct Nibbles {
    explicit Nibbles(int offset) : shift(_mm256_set1_epi32(offset)) {}
    void load(const std::uint8_t* p, Vector& low, Vector& high) const {
      const __m256i bytes = _mm256_cvtepu8_epi32(eight_bytes(p));
      const __m256i mask = _mm256_set1_epi32(15);
      low = _mm256_cvtepi32_ps(_mm256_add_epi32(_mm256_and_si256(bytes, mask), shift));
      high = _mm256_cvtepi32_ps(_mm256_add_epi32(_mm256_srli_epi32(bytes, 4), shift));
    }
    __m256i shift;
  };
};

constexpr PanelKernels kKernels = make_panel_kernels<Avx2>("AVX2");

}  // namespace

namespace avx512 {
extern const PanelKernels kKernels;  // panel_kernels_avx512.cpp
}

namespace {

bool has_avx512() { return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw"); }

}  // namespace

const PanelKernels& panel_kernels() { return has_avx512() ? avx512::kKernels : kKernels; }

const PanelKernels* slower_panel_kernels() { return has_avx512() ? &kKernels : nullptr; }

}  // namespace psring::worker
