#include <cstring>

#include <arm_neon.h>

#include <psring/worker/model/generate/panel_loops.h>

namespace psring::worker {
namespace {

struct Neon {
  using Vector = float32x4_t;
  static constexpr std::size_t kWidth = 4;
  static constexpr std::size_t kVectorsOfManyRows = 4;  // 6 rows x 4 vectors fill 24 of 32 registers

  static Vector load(const float* p) { return vld1q_f32(p); }
  static void store(float* p, Vector v) { vst1q_f32(p, v); }
  static Vector broadcast(float x) { return vdupq_n_f32(x); }
  static Vector multiply(Vector a, Vector b) { return vmulq_f32(a, b); }
  static Vector multiply_add(Vector a, Vector b, Vector c) { return vfmaq_f32(c, a, b); }
  static Vector negate(Vector a) { return vnegq_f32(a); }
  static uint8x8_t four_bytes(const void* p) {
    std::uint32_t word = 0;
    std::memcpy(&word, p, sizeof word);
    return vreinterpret_u8_u32(vdup_n_u32(word));
  }
  static Vector load_int8(const std::int8_t* p) {
    return vcvtq_f32_s32(vmovl_s16(vget_low_s16(vmovl_s8(vreinterpret_s8_u8(four_bytes(p))))));
  }
  static Vector load_uint8(const std::uint8_t* p) { return vcvtq_f32_u32(wide(four_bytes(p))); }
  static uint32x4_t wide(uint8x8_t bytes) { return vmovl_u16(vget_low_u16(vmovl_u8(bytes))); }

  /// Turns halves of bytes into floats, plus `offset`.
  struct Nibbles {
    explicit Nibbles(int offset) : shift(vdupq_n_s32(offset)) {}
    void load(const std::uint8_t* p, Vector& low, Vector& high) const {
      const uint32x4_t bytes = wide(four_bytes(p));
      low = vcvtq_f32_s32(vaddq_s32(vreinterpretq_s32_u32(vandq_u32(bytes, vdupq_n_u32(15))), shift));
      high = vcvtq_f32_s32(vaddq_s32(vreinterpretq_s32_u32(vshrq_n_u32(bytes, 4)), shift));
    }
    int32x4_t shift;
  };
};

constexpr PanelKernels kKernels = make_panel_kernels<Neon>("NEON");

}  // namespace

const PanelKernels& panel_kernels() { return kKernels; }

const PanelKernels* slower_panel_kernels() { return nullptr; }

}  // namespace psring::worker
