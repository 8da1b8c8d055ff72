#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include <oneapi/dnnl/dnnl.hpp>

#include <psring/common/base/range.h>
#include <psring/common/base/text/error.h>
#include <psring/common/device/cpu_convolutions.h>
#include <psring/common/device/onednn.h>

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

namespace {

using dnnl::memory;

enum class Pass : std::uint8_t { forward, backward_input, backward_weights };

constexpr std::size_t kAlign = 16;  ///< floats: a cache line

memory::dims dims(std::initializer_list<std::size_t> sizes) {
  memory::dims list;
  for (const std::size_t size : sizes) list.push_back(static_cast<memory::dim>(size));
  return list;
}

/// The operands of a convolution, in plain layouts or in layouts that oneDNN chooses.
struct Operands {
  memory::desc x, w, bias, y;

  Operands(const Convolution& c, bool plain) {
    using tag = memory::format_tag;
    const auto desc = [](const memory::dims& size, tag format) {
      return memory::desc(size, memory::data_type::f32, format);
    };
    x = desc(dims({c.batch, c.in, c.height, c.width}), plain ? tag::nchw : tag::any);
    w = desc(dims({c.out, c.in, c.kernel, c.kernel}), plain ? tag::oihw : tag::any);
    bias = desc(dims({c.out}), tag::a);
    y = desc(dims({c.batch, c.out, c.height, c.width}), plain ? tag::nchw : tag::any);
  }
};

dnnl::primitive_attr attributes() {
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  return attributes;
}

dnnl::convolution_forward::primitive_desc describe_forward(const Convolution& c, const dnnl::engine& engine) {
  const Operands any(c, false);
  const memory::dims margin = dims({c.kernel / 2, c.kernel / 2});
  return describe_primitive<dnnl::convolution_forward>(engine, attributes(), dnnl::prop_kind::forward_training,
                                                       dnnl::algorithm::convolution_direct, any.x, any.w, any.bias,
                                                       any.y, memory::dims{1, 1}, margin, margin);
}

}  // namespace

/// A convolution primitive. Operands in other layouts than ours are copied into the scratch memory, and back.
class CpuConvolutions::Prepared {
 public:
  /// Null if oneDNN has no kernel of its own for the pass (a name that begins with jit).
  static std::unique_ptr<Prepared> make(Pass pass, const Convolution& c, const dnnl::engine& engine) {
    const auto forward = describe_forward(c, engine);
    if (forward.get(true) == nullptr) return nullptr;
    const Operands any(c, false);
    const Operands plain(c, true);
    const memory::dims stride{1, 1};
    const memory::dims margin = dims({c.kernel / 2, c.kernel / 2});
    auto made = std::make_unique<Prepared>();
    const auto fast = [](const auto& chosen) {
      return chosen.get(true) != nullptr && std::string_view(chosen.impl_info_str()).starts_with("jit");
    };
    if (pass == Pass::forward) {
      if (!fast(forward)) return nullptr;
      made->take(dnnl::convolution_forward(forward), forward.scratchpad_desc(), engine);
      made->add(DNNL_ARG_SRC, plain.x, forward.src_desc(), engine, false);
      made->add(DNNL_ARG_WEIGHTS, plain.w, forward.weights_desc(), engine, false);
      made->add(DNNL_ARG_BIAS, plain.bias, plain.bias, engine, false);
      made->add(DNNL_ARG_DST, plain.y, forward.dst_desc(), engine, true);
    } else if (pass == Pass::backward_input) {
      const auto chosen = describe_backward<dnnl::convolution_backward_data>(engine, attributes(), forward,
                                                                             dnnl::algorithm::convolution_direct, any.x,
                                                                             any.w, any.y, stride, margin, margin);
      if (!fast(chosen)) return nullptr;
      made->take(dnnl::convolution_backward_data(chosen), chosen.scratchpad_desc(), engine);
      made->add(DNNL_ARG_DIFF_DST, plain.y, chosen.diff_dst_desc(), engine, false);
      made->add(DNNL_ARG_WEIGHTS, plain.w, chosen.weights_desc(), engine, false);
      made->add(DNNL_ARG_DIFF_SRC, plain.x, chosen.diff_src_desc(), engine, true);
    } else {
      const auto chosen = describe_backward<dnnl::convolution_backward_weights>(
          engine, attributes(), forward, dnnl::algorithm::convolution_direct, any.x, any.w, any.bias, any.y, stride,
          margin, margin);
      if (!fast(chosen)) return nullptr;
      made->take(dnnl::convolution_backward_weights(chosen), chosen.scratchpad_desc(), engine);
      made->add(DNNL_ARG_SRC, plain.x, chosen.src_desc(), engine, false);
      made->add(DNNL_ARG_DIFF_DST, plain.y, chosen.diff_dst_desc(), engine, false);
      made->add(DNNL_ARG_DIFF_WEIGHTS, plain.w, chosen.diff_weights_desc(), engine, true);
      made->add(DNNL_ARG_DIFF_BIAS, plain.bias, plain.bias, engine, true);
    }
    return made;
  }

  std::size_t scratch_floats() const { return scratch_floats_; }

  /// `pointers`: the operands in the order in which `make` adds them.
  void run(const dnnl::stream& stream, std::span<const void* const> pointers, std::span<float> scratch) {
    float* free = scratch.data();
    for (std::size_t i = 0; i < operands_.size(); ++i) {
      Operand& operand = operands_[i];
      operand.ours.set_data_handle(const_cast<void*>(pointers[i]));  // oneDNN takes void*, but only reads the sources
      if (!operand.copied) continue;
      operand.theirs.set_data_handle(free);
      free += operand.floats;
      if (!operand.output) operand.copy.execute(stream, operand.ours, operand.theirs);
    }
    scratchpad_.set_data_handle(free);
    std::unordered_map<int, memory> arguments{{DNNL_ARG_SCRATCHPAD, scratchpad_}};
    for (const Operand& operand : operands_)
      arguments.emplace(operand.name, operand.copied ? operand.theirs : operand.ours);
    primitive_.execute(stream, arguments);
    for (Operand& operand : operands_)
      if (operand.copied && operand.output) operand.copy.execute(stream, operand.theirs, operand.ours);
  }

 private:
  struct Operand {
    int name = 0;
    bool output = false;
    bool copied = false;
    std::size_t floats = 0;  ///< of the copy
    memory ours, theirs;
    dnnl::reorder copy;
  };

  static std::size_t floats_of(const memory::desc& desc) {
    return round_up((desc.get_size() + sizeof(float) - 1) / sizeof(float), kAlign);
  }

  void take(dnnl::primitive primitive, const memory::desc& scratchpad, const dnnl::engine& engine) {
    primitive_ = std::move(primitive);
    scratchpad_ = memory(scratchpad, engine, nullptr);
    scratch_floats_ += floats_of(scratchpad);
  }

  void add(int name, const memory::desc& ours, const memory::desc& theirs, const dnnl::engine& engine, bool output) {
    Operand operand{.name = name, .output = output, .copied = ours != theirs};
    operand.ours = memory(ours, engine, nullptr);
    if (operand.copied) {
      operand.theirs = memory(theirs, engine, nullptr);
      operand.floats = floats_of(theirs);
      scratch_floats_ += operand.floats;
      operand.copy = output ? dnnl::reorder(operand.theirs, operand.ours) : dnnl::reorder(operand.ours, operand.theirs);
    }
    operands_.push_back(std::move(operand));
  }

  dnnl::primitive primitive_;
  memory scratchpad_;
  std::vector<Operand> operands_;
  std::size_t scratch_floats_ = 0;
};

struct CpuConvolutions::State {
  static constexpr std::size_t kMostPrepared = 256;  ///< limits the memory if a caller uses ever new shapes

  dnnl::engine engine{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream{engine};
  std::map<std::tuple<Pass, std::array<std::size_t, 6>>, std::unique_ptr<Prepared>> prepared;

  /// Returns null if oneDNN has no kernel that fits into the scratch.
  Prepared* find(Pass pass, const Convolution& c, std::span<float> scratch) {
    const std::tuple key(pass, std::array{c.batch, c.in, c.out, c.height, c.width, c.kernel});
    auto found = prepared.find(key);
    if (found == prepared.end()) {
      if (prepared.size() == kMostPrepared) prepared.clear();
      found = prepared.emplace(key, Prepared::make(pass, c, engine)).first;
    }
    Prepared* const made = found->second.get();
    return made != nullptr && made->scratch_floats() <= scratch.size() ? made : nullptr;
  }

  bool run(Pass pass, const Convolution& c, std::initializer_list<const void*> pointers, std::span<float> scratch) {
    Prepared* const made = find(pass, c, scratch);
    if (made == nullptr) return false;
    try {
      made->run(stream, {pointers.begin(), pointers.size()}, scratch);
    } catch (const dnnl::error& error) {
      fail(ErrorKind::bug, "oneDNN's convolution failed: {}", error.what());
    }
    return true;
  }
};

CpuConvolutions::CpuConvolutions() : state_(std::make_unique<State>()) {}
CpuConvolutions::~CpuConvolutions() = default;

bool CpuConvolutions::forward(const Convolution& shape, const float* x, const float* w, const float* bias, float* y,
                              std::span<float> scratch) {
  return state_->run(Pass::forward, shape, {x, w, bias, y}, scratch);
}

bool CpuConvolutions::backward_input(const Convolution& shape, const float* dy, const float* w, float* dx,
                                     std::span<float> scratch) {
  return state_->run(Pass::backward_input, shape, {dy, w, dx}, scratch);
}

/// oneDNN overwrites gradients; those that are added come by way of the scratch memory.
bool CpuConvolutions::backward_weights(const Convolution& shape, const float* x, const float* dy, float beta, float* dw,
                                       float bias_beta, float* db, std::span<float> scratch) {
  const std::size_t sums = round_up(shape.weights(), kAlign) + round_up(shape.out, kAlign);
  if (scratch.size() < sums) return false;
  float* const new_w = beta == 0 ? dw : scratch.data();
  float* const new_b = bias_beta == 0 ? db : scratch.data() + round_up(shape.weights(), kAlign);
  if (!state_->run(Pass::backward_weights, shape, {x, dy, new_w, new_b}, scratch.subspan(sums))) return false;
  if (beta != 0)
    for (std::size_t i = 0; i < shape.weights(); ++i) dw[i] = beta * dw[i] + new_w[i];
  if (bias_beta != 0)
    for (std::size_t i = 0; i < shape.out; ++i) db[i] = bias_beta * db[i] + new_b[i];
  return true;
}

}  // namespace psring
