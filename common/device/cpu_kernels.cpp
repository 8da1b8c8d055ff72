#include <algorithm>
#include <array>
#include <cstddef>
#include <map>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include <oneapi/dnnl/dnnl.hpp>

#include <psring/common/base/half.h>
#include <psring/common/base/text/error.h>
#include <psring/common/device/cpu_convolutions.h>
#include <psring/common/device/kernels.h>
#include <psring/common/device/onednn.h>

namespace psring {
namespace {

using dnnl::memory;

/// Sets the size of OpenMP's thread team during one call. Debian's oneDNN runs on OpenMP, whose team size is a setting
/// of the calling thread. A team of one thread opens no parallel region, so that no thread is started that could spin.
class Team {
 public:
  explicit Team(int threads) : before_(omp_get_max_threads()) { omp_set_num_threads(threads); }
  ~Team() { omp_set_num_threads(before_); }
  Team(const Team&) = delete;
  Team& operator=(const Team&) = delete;

 private:
  int before_;
};

/// C = alpha * op(A) op(B) + bias + beta * C with explicit strides: the key of a primitive.
struct Product {
  Gemm shape;
  float alpha = 1;
  float beta = 0;
  bool bias = false;
  bool bf16 = false;  ///< whether a and b are bf16

  auto key() const {
    const Gemm& s = shape;
    return std::tuple(s.m, s.n, s.k, s.transpose_a, s.transpose_b, s.lda, s.ldb, s.ldc, alpha, beta, bias, bf16);
  }
  bool operator<(const Product& other) const { return key() < other.key(); }
};

memory::desc matrix(std::size_t rows, std::size_t cols, std::size_t stride, bool transposed = false,
                    bool bf16 = false) {
  const auto step = static_cast<memory::dim>(stride);
  return {{static_cast<memory::dim>(rows), static_cast<memory::dim>(cols)},
          bf16 ? memory::data_type::bf16 : memory::data_type::f32,
          transposed ? memory::dims{1, step} : memory::dims{step, 1}};
}

/// Returns an empty description if oneDNN has no implementation: products of bf16 need AVX-512.
dnnl::matmul::primitive_desc describe(const Product& p, const dnnl::engine& engine) {
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  dnnl::post_ops after;
#if DNNL_VERSION_MAJOR >= 3
  if (p.alpha != 1) after.append_eltwise(dnnl::algorithm::eltwise_linear, p.alpha, 0);
#else
  if (p.alpha != 1) attributes.set_output_scales(0, {p.alpha});
#endif
  if (p.beta != 0) after.append_sum(p.beta);
  attributes.set_post_ops(after);
  const Gemm& s = p.shape;
  const auto a = matrix(s.m, s.k, s.lda, s.transpose_a, p.bf16);
  const auto b = matrix(s.k, s.n, s.ldb, s.transpose_b, p.bf16);
  const auto c = matrix(s.m, s.n, s.ldc);
  if (p.bias) return describe_primitive<dnnl::matmul>(engine, attributes, a, b, matrix(1, s.n, s.n), c);
  return describe_primitive<dnnl::matmul>(engine, attributes, a, b, c);
}

/// A matmul primitive with the memory objects of its arguments. Each call sets their pointers.
class Prepared {
 public:
  Prepared(const dnnl::matmul::primitive_desc& chosen, const dnnl::engine& engine)
      : scratch_bytes_(chosen.scratchpad_desc().get_size()), primitive_(chosen) {
    const auto add = [&](int name, const memory::desc& layout) {
      memories_.emplace_back(layout, engine, nullptr);
      arguments_.push_back({name, memories_.back().get()});
    };
    add(DNNL_ARG_SRC, chosen.src_desc());
    add(DNNL_ARG_WEIGHTS, chosen.weights_desc());
    add(DNNL_ARG_DST, chosen.dst_desc());
    add(DNNL_ARG_SCRATCHPAD, chosen.scratchpad_desc());
    if (!chosen.query_md(dnnl::query::exec_arg_md, DNNL_ARG_BIAS).is_zero())
      add(DNNL_ARG_BIAS, chosen.query_md(dnnl::query::exec_arg_md, DNNL_ARG_BIAS));
  }

  // NOLINTNEXTLINE(readability-non-const-parameter): c is written through a void*.
  void run(const dnnl::stream& stream, const void* a, const void* b, const float* bias, float* c,
           std::vector<float>& scratch) {
    if (scratch.size() * sizeof(float) < scratch_bytes_) scratch.resize((scratch_bytes_ + 3) / sizeof(float));
    // oneDNN takes void*, but only reads the sources.
    const std::array<void*, 5> pointers{const_cast<void*>(a), const_cast<void*>(b), c, scratch.data(),
                                        const_cast<float*>(bias)};
    for (std::size_t i = 0; i < memories_.size(); ++i) memories_[i].set_data_handle(pointers[i]);
    const dnnl_status_t status =
        dnnl_primitive_execute(primitive_.get(), stream.get(), static_cast<int>(arguments_.size()), arguments_.data());
    check(status == dnnl_success, "oneDNN's matmul failed with status {}", static_cast<int>(status));
  }

 private:
  std::size_t scratch_bytes_;
  dnnl::matmul primitive_;
  std::vector<memory> memories_;
  std::vector<dnnl_exec_arg_t> arguments_;
};

class CpuKernels final : public Kernels {
 public:
  CpuKernels(std::size_t threads, DType operands)
      : threads_(static_cast<int>(threads)),
        bf16_(operands == DType::bf16),
        engine_(dnnl::engine::kind::cpu, 0),
        stream_(engine_) {
    check(threads > 0, "CPU kernels need a thread");
  }

  void gemm(const Gemm& shape, float alpha, const float* a, const float* b, float beta, float* c) override {
    const Gemm s = with_strides(shape);
    if (s.m == 0 || s.n == 0) return;
    if (s.k == 0) return scale(s, beta, c);
    const Team team(threads_);
    if (bf16_ && run_in_bf16({.shape = s, .alpha = alpha, .beta = beta}, a, b, nullptr, c)) return;
    if (prefers_sgemm(s)) return sgemm(s, alpha, a, b, beta, c);
    Prepared* const prepared = find({.shape = s, .alpha = alpha, .beta = beta});
    if (prepared == nullptr) return sgemm(s, alpha, a, b, beta, c);
    prepared->run(stream_, a, b, nullptr, c, scratch_);
  }

  void linear(std::size_t m, std::size_t n, std::size_t k, const float* x, const float* w, const float* bias,
              Activation activation, float* y) override {
    if (m == 0 || n == 0) return;
    const Gemm s = with_strides({.m = m, .n = n, .k = k, .transpose_b = true});
    const Team team(threads_);
    if (bf16_ && k > 0 && run_in_bf16({.shape = s, .bias = bias != nullptr}, x, w, bias, y)) {
      if (activation == Activation::relu) relu(y, m * n);
      return;
    }
    Prepared* const prepared = k == 0 || bias == nullptr ? nullptr : find({.shape = s, .bias = true});
    if (prepared != nullptr) {
      prepared->run(stream_, x, w, bias, y, scratch_);
    } else {
      gemm(s, 1, x, w, 0, y);
      if (bias != nullptr)
        for (std::size_t i = 0; i < m; ++i)
          for (std::size_t j = 0; j < n; ++j) y[i * n + j] += bias[j];
    }
    if (activation == Activation::relu) relu(y, m * n);
  }

  void convolve(const Convolution& shape, const float* x, const float* w, const float* bias, Activation activation,
                float* y, std::span<float> scratch) override {
    const Team team(threads_);
    if (!convolutions_.forward(shape, x, w, bias, y, scratch))
      convolve_by_products(*this, shape, x, w, bias, y, scratch);
    if (activation == Activation::relu) relu(y, shape.batch * shape.out * shape.pixels());
  }

  void convolve_backward_input(const Convolution& shape, const float* dy, const float* w, float* dx,
                               std::span<float> scratch) override {
    const Team team(threads_);
    if (!convolutions_.backward_input(shape, dy, w, dx, scratch))
      convolve_input_by_products(*this, shape, dy, w, dx, scratch);
  }

  void convolve_backward_weights(const Convolution& shape, const float* x, const float* dy, float beta, float* dw,
                                 float bias_beta, float* db, std::span<float> scratch) override {
    const Team team(threads_);
    if (!convolutions_.backward_weights(shape, x, dy, beta, dw, bias_beta, db, scratch))
      convolve_weights_by_products(*this, shape, x, dy, beta, dw, bias_beta, db, scratch);
  }

 private:
  static constexpr std::size_t kLeastReuse = 32;
  static constexpr std::size_t kMostPrepared = 512;  ///< limits the memory if a caller uses ever new shapes

  static Gemm with_strides(Gemm s) {
    if (s.lda == 0) s.lda = s.transpose_a ? s.m : s.k;
    if (s.ldb == 0) s.ldb = s.transpose_b ? s.k : s.n;
    if (s.ldc == 0) s.ldc = s.n;
    return s;
  }

  /// Rounds a and b into dense copies, and multiplies the copies. Returns false if rounding costs more than it saves:
  /// rounding an element takes about 0.3 ns, and a bf16 multiplication saves about 0.01 ns over f32.
  bool run_in_bf16(Product product, const float* a, const float* b, const float* bias, float* c) {
    Gemm& s = product.shape;
    if (s.m * s.n < kLeastReuse * (s.m + s.n)) return false;
    const auto dense = [](std::vector<BFloat16>& copy, const float* from, std::size_t stride, std::size_t rows,
                          std::size_t cols) {
      copy.resize(std::max(copy.size(), rows * cols));
      for (std::size_t r = 0; r < rows; ++r) narrow(from + r * stride, copy.data() + r * cols, cols);
    };
    const Gemm given = s;
    product.bf16 = true;
    s.lda = s.transpose_a ? s.m : s.k;
    s.ldb = s.transpose_b ? s.k : s.n;
    Prepared* const prepared = find(product);
    if (prepared == nullptr) return false;
    dense(narrow_a_, a, given.lda, s.transpose_a ? s.k : s.m, s.lda);
    dense(narrow_b_, b, given.ldb, s.transpose_b ? s.n : s.k, s.ldb);
    prepared->run(stream_, narrow_a_.data(), narrow_b_.data(), bias, c, scratch_);
    return true;
  }

  /// Returns whether sgemm is faster than matmul. Measured with oneDNN 2.6 on Zen 4: sgemm packs a transposed A better,
  /// and leads by a few percent for many rows and a plain B. matmul leads by 5 to 30 % otherwise.
  static bool prefers_sgemm(const Gemm& s) { return s.transpose_a || (s.m >= 1024 && !s.transpose_b); }

  static void scale(const Gemm& s, float beta, float* c) {
    for (std::size_t i = 0; i < s.m; ++i)
      for (std::size_t j = 0; j < s.n; ++j) c[i * s.ldc + j] = beta == 0 ? 0.0F : beta * c[i * s.ldc + j];
  }

  static void sgemm(const Gemm& s, float alpha, const float* a, const float* b, float beta, float* c) {
    const auto dim = [](std::size_t value) { return static_cast<dnnl_dim_t>(value); };
    const dnnl_status_t status = dnnl_sgemm(s.transpose_a ? 'T' : 'N', s.transpose_b ? 'T' : 'N', dim(s.m), dim(s.n),
                                            dim(s.k), alpha, a, dim(s.lda), b, dim(s.ldb), beta, c, dim(s.ldc));
    check(status == dnnl_success, "oneDNN's sgemm {}x{}x{} failed with status {}", s.m, s.n, s.k,
          static_cast<int>(status));
  }

  /// Replaces oneDNN's ReLU, which turns NaN into 0 and would hide divergence. Takes 1 % of the product's time.
  static void relu(float* y, std::size_t n) {
    for (std::size_t i = 0; i < n; ++i) y[i] = y[i] < 0 ? 0.0F : y[i];
  }

  /// Returns the primitive for a product, which is made on first use. Returns null if oneDNN has only its reference
  /// implementation or sgemm for the product, or no implementation, or a wrong one.
  Prepared* find(const Product& product) {
    // oneDNN 3.7 stores a column whose elements lie apart as if they were adjacent; 2.6 does not.
    if (DNNL_VERSION_MAJOR >= 3 && product.shape.n == 1 && product.shape.ldc > 1) return nullptr;
    auto found = prepared_.find(product);
    if (found == prepared_.end()) {
      if (prepared_.size() == kMostPrepared) prepared_.clear();
      const dnnl::matmul::primitive_desc chosen = describe(product, engine_);
      std::unique_ptr<Prepared> made;
      if (chosen.get(true) != nullptr && std::string_view(chosen.impl_info_str()).starts_with("brg"))
        made = std::make_unique<Prepared>(chosen, engine_);
      found = prepared_.emplace(product, std::move(made)).first;
    }
    return found->second.get();
  }

  int threads_;
  bool bf16_;
  dnnl::engine engine_;
  dnnl::stream stream_;
  std::map<Product, std::unique_ptr<Prepared>> prepared_;
  CpuConvolutions convolutions_;
  std::vector<float> scratch_;
  std::vector<BFloat16> narrow_a_;
  std::vector<BFloat16> narrow_b_;
};

}  // namespace

std::unique_ptr<Kernels> make_cpu_kernels(std::size_t threads, DType operands) {
  return std::make_unique<CpuKernels>(threads, operands);
}

}  // namespace psring
