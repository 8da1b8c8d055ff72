// Compiled with AVX-512 instructions: nothing of this file but the kernels may be called before the processor is
// checked, and no header with inline functions of ours or of the standard library is included.
#include <immintrin.h>

#include <psring/worker/model/generate/panel_loops.h>

namespace psring::worker {
namespace {

struct Avx512 {
  using Vector = __m512;
  static constexpr std::size_t kWidth = 16;
  static constexpr std::size_t kVectorsOfManyRows = 4;

  static Vector load(const float* p) { return _mm512_loadu_ps(p); }
  static void store(float* p, Vector v) { _mm512_storeu_ps(p, v); }
  static Vector broadcast(float x) { return _mm512_set1_ps(x); }
  static Vector multiply(Vector a, Vector b) { return _mm512_mul_ps(a, b); }
  static Vector multiply_add(Vector a, Vector b, Vector c) { return _mm512_fmadd_ps(a, b, c); }
  static Vector negate(Vector a) {
    return _mm512_castsi512_ps(
        _mm512_xor_si512(_mm512_castps_si512(a), _mm512_set1_epi32(static_cast<int>(0x80000000U))));
  }
  static __m128i sixteen_bytes(const void* p) { return _mm_loadu_si128(static_cast<const __m128i*>(p)); }
  static Vector load_int8(const std::int8_t* p) { return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(sixteen_bytes(p))); }
  static Vector load_uint8(const std::uint8_t* p) { return _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(sixteen_bytes(p))); }

  /// Turns halves of bytes into floats, plus `offset`, by a table of 16 floats in a register: the permutation reads the
  /// low four bits of each index.
  struct Nibbles {
    explicit Nibbles(int offset)
        : table(_mm512_cvtepi32_ps(_mm512_add_epi32(
              _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15), _mm512_set1_epi32(offset)))) {}
    void load(const std::uint8_t* p, Vector& low, Vector& high) const {
      const __m512i bytes = _mm512_cvtepu8_epi32(sixteen_bytes(p));
      low = _mm512_permutexvar_ps(bytes, table);
      high = _mm512_permutexvar_ps(_mm512_srli_epi32(bytes, 4), table);
    }
    Vector table;
  };
};

}  // namespace

namespace avx512 {
extern const PanelKernels kKernels;
constexpr PanelKernels kKernels = make_panel_kernels<Avx512>("AVX-512");
}  // namespace avx512

}  // namespace psring::worker
