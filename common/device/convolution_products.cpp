#include <algorithm>

#include <psring/common/base/error.h>
#include <psring/common/base/range.h>
#include <psring/common/device/convolution_products.h>

namespace psring {
namespace {

std::size_t patch(const Convolution& c) { return c.in * c.kernel * c.kernel; }
std::size_t patch_floats(const Convolution& c) { return patch(c) * c.pixels(); }

/// Calls `visit(row, at, from, count)` for each run of pixels: `count` values from `from` of an image go to, or come
/// from, `at` of the row of its patches, whose other values are outside of the image.
template <class Visit>
void for_each_run(const Convolution& c, Visit&& visit) {
  const std::size_t margin = c.kernel / 2;
  std::size_t row = 0;
  for (std::size_t channel = 0; channel < c.in; ++channel)
    for (std::size_t ky = 0; ky < c.kernel; ++ky)
      for (std::size_t kx = 0; kx < c.kernel; ++kx, ++row) {
        const std::size_t left = kx < margin ? margin - kx : 0;
        const std::size_t right = kx > margin ? kx - margin : 0;
        if (left + right >= c.width) continue;
        for (std::size_t y = ky < margin ? margin - ky : 0; y + ky < c.height + margin && y < c.height; ++y)
          visit(row, y * c.width + left, (channel * c.height + y + ky - margin) * c.width + left + kx - margin,
                c.width - left - right);
      }
}

/// Writes the patches of one image: [in * kernel * kernel, height * width].
void write_patches(const Convolution& c, const float* image, float* patches) {
  std::fill_n(patches, patch_floats(c), 0.0F);
  for_each_run(c, [&](std::size_t row, std::size_t at, std::size_t from, std::size_t count) {
    std::copy_n(image + from, count, patches + row * c.pixels() + at);
  });
}

/// image += the patches' values.
void add_patches(const Convolution& c, const float* patches, float* image) {
  for_each_run(c, [&](std::size_t row, std::size_t at, std::size_t from, std::size_t count) {
    const float* values = patches + row * c.pixels() + at;
    for (std::size_t i = 0; i < count; ++i) image[from + i] += values[i];
  });
}

void check_scratch(const Convolution& c, std::span<float> scratch) {
  check(scratch.size() >= patch_floats(c), "a convolution has {} floats of scratch, {} needed", scratch.size(),
        patch_floats(c));
}

}  // namespace

/// Memory of oneDNN's blocked layouts, whose channels are padded to at most 16, and partial sums of the weights'
/// gradient for up to four threads; or the patches of one image.
std::size_t convolution_scratch(const Convolution& c) {
  constexpr std::size_t kBlock = 16;
  constexpr std::size_t kSmall = 8192;
  const std::size_t in = round_up(c.in, kBlock);
  const std::size_t out = round_up(c.out, kBlock);
  const std::size_t blocked = c.batch * (in + out) * c.pixels() + 5 * in * out * c.kernel * c.kernel + 2 * out + kSmall;
  return std::max(blocked, patch_floats(c));
}

void convolve_by_products(Kernels& kernels, const Convolution& c, const float* x, const float* w, const float* bias,
                          float* y, std::span<float> scratch) {
  check_scratch(c, scratch);
  for (std::size_t image = 0; image < c.batch; ++image) {
    write_patches(c, x + image * c.in * c.pixels(), scratch.data());
    float* const to = y + image * c.out * c.pixels();
    for (std::size_t o = 0; o < c.out; ++o) std::fill_n(to + o * c.pixels(), c.pixels(), bias[o]);
    kernels.gemm({.m = c.out, .n = c.pixels(), .k = patch(c)}, 1, w, scratch.data(), 1, to);
  }
}

void convolve_input_by_products(Kernels& kernels, const Convolution& c, const float* dy, const float* w, float* dx,
                                std::span<float> scratch) {
  check_scratch(c, scratch);
  std::fill_n(dx, c.batch * c.in * c.pixels(), 0.0F);
  for (std::size_t image = 0; image < c.batch; ++image) {
    kernels.gemm({.m = patch(c), .n = c.pixels(), .k = c.out, .transpose_a = true}, 1, w,
                 dy + image * c.out * c.pixels(), 0, scratch.data());
    add_patches(c, scratch.data(), dx + image * c.in * c.pixels());
  }
}

void convolve_weights_by_products(Kernels& kernels, const Convolution& c, const float* x, const float* dy, float beta,
                                  float* dw, float bias_beta, float* db, std::span<float> scratch) {
  check_scratch(c, scratch);
  for (std::size_t image = 0; image < c.batch; ++image) {
    write_patches(c, x + image * c.in * c.pixels(), scratch.data());
    const float* const from = dy + image * c.out * c.pixels();
    kernels.gemm({.m = c.out, .n = patch(c), .k = c.pixels(), .transpose_b = true}, 1, from, scratch.data(),
                 image == 0 ? beta : 1.0F, dw);
    for (std::size_t o = 0; o < c.out; ++o) {
      float sum = image == 0 && bias_beta == 0 ? 0.0F : db[o];
      for (std::size_t i = 0; i < c.pixels(); ++i) sum += from[o * c.pixels() + i];
      db[o] = sum;
    }
  }
}

}  // namespace psring
