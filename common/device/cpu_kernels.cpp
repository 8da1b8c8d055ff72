#include <algorithm>
#include <compare>
#include <map>
#include <memory>

#include <omp.h>
#include <oneapi/dnnl/dnnl.hpp>

#include <psring/common/base/error.h>
#include <psring/common/device/kernels.h>

namespace psring {
namespace {

using dnnl::memory;

/// oneDNN (as packaged) runs on OpenMP, whose team size is a setting of the calling thread: set for the
/// length of a call. A team of one makes no parallel region, so no thread is ever started that could spin.
class Team {
 public:
  explicit Team(int threads) : before_(omp_get_max_threads()) { omp_set_num_threads(threads); }
  ~Team() { omp_set_num_threads(before_); }
  Team(const Team&) = delete;
  Team& operator=(const Team&) = delete;

 private:
  int before_;
};

memory::desc matrix(std::size_t rows, std::size_t cols, std::size_t row_stride, std::size_t col_stride) {
  return {{static_cast<memory::dim>(rows), static_cast<memory::dim>(cols)},
          memory::data_type::f32,
          memory::dims{static_cast<memory::dim>(row_stride), static_cast<memory::dim>(col_stride)}};
}

class CpuKernels final : public Kernels {
 public:
  explicit CpuKernels(std::size_t threads)
      : threads_(static_cast<int>(threads)), engine_(dnnl::engine::kind::cpu, 0), stream_(engine_) {}

  void gemm(const Gemm& s, float alpha, const float* a, const float* b, float beta, float* c) override {
    if (s.m == 0 || s.n == 0) return;
    const std::size_t ldc = s.ldc != 0 ? s.ldc : s.n;
    if (s.k == 0) return scale_only(s.m, s.n, ldc, beta, c);
    const std::size_t lda = s.lda != 0 ? s.lda : (s.transpose_a ? s.m : s.k);
    const std::size_t ldb = s.ldb != 0 ? s.ldb : (s.transpose_b ? s.k : s.n);
    const Team team(threads_);
    const auto status = dnnl_sgemm(s.transpose_a ? 'T' : 'N', s.transpose_b ? 'T' : 'N', dim(s.m), dim(s.n), dim(s.k),
                                   alpha, a, dim(lda), b, dim(ldb), beta, c, dim(ldc));
    check(status == dnnl_success, "sgemm {}x{}x{} failed: status {}", s.m, s.n, s.k, static_cast<int>(status));
  }

  void linear(std::size_t m, std::size_t n, std::size_t k, const float* x, const float* w, const float* bias,
              Activation activation, float* y) override {
    if (m == 0 || n == 0) return;
    check(k > 0, "linear: {}x{}x{}", m, n, k);
    const Team team(threads_);
    Linear& l = prepared({m, n, k, bias != nullptr, activation});
    l.x.set_data_handle(const_cast<float*>(x));
    l.w.set_data_handle(const_cast<float*>(w));
    if (bias != nullptr) l.bias.set_data_handle(const_cast<float*>(bias));
    l.y.set_data_handle(y);
    l.primitive.execute(stream_, l.arguments);
  }

 private:
  struct LinearKey {
    std::size_t m, n, k;
    bool bias;
    Activation activation;
    friend auto operator<=>(const LinearKey&, const LinearKey&) = default;
  };
  struct Linear {
    dnnl::primitive primitive;
    memory x, w, bias, y;
    std::unordered_map<int, memory> arguments;
  };

  static dnnl_dim_t dim(std::size_t value) { return static_cast<dnnl_dim_t>(value); }

  static void scale_only(std::size_t m, std::size_t n, std::size_t ldc, float beta, float* c) {
    for (std::size_t i = 0; i < m; ++i)
      for (std::size_t j = 0; j < n; ++j) c[i * ldc + j] = beta == 0 ? 0.0F : beta * c[i * ldc + j];
  }

  Linear& prepared(const LinearKey& key) {
    const auto found = linear_.find(key);
    if (found != linear_.end()) return found->second;
    dnnl::primitive_attr attributes;
    if (key.activation == Activation::relu) {
      dnnl::post_ops after;
      after.append_eltwise(1.0F, dnnl::algorithm::eltwise_relu, 0.0F, 0.0F);
      attributes.set_post_ops(after);
    }
    const auto x = matrix(key.m, key.k, key.k, 1);
    const auto w = matrix(key.k, key.n, 1, key.k);
    const auto y = matrix(key.m, key.n, key.n, 1);
    const auto bias = key.bias ? matrix(1, key.n, key.n, 1) : memory::desc();
    const auto description = key.bias ? dnnl::matmul::desc(x, w, bias, y) : dnnl::matmul::desc(x, w, y);
    const dnnl::matmul::primitive_desc chosen(description, attributes, engine_);
    Linear l;
    l.primitive = dnnl::matmul(chosen);
    l.x = memory(x, engine_, nullptr);
    l.w = memory(w, engine_, nullptr);
    l.y = memory(y, engine_, nullptr);
    l.arguments = {{DNNL_ARG_SRC, l.x}, {DNNL_ARG_WEIGHTS, l.w}, {DNNL_ARG_DST, l.y}};
    if (key.bias) {
      l.bias = memory(bias, engine_, nullptr);
      l.arguments.emplace(DNNL_ARG_BIAS, l.bias);
    }
    return linear_.emplace(key, std::move(l)).first->second;
  }

  int threads_;
  dnnl::engine engine_;
  dnnl::stream stream_;
  std::map<LinearKey, Linear> linear_;
};

}  // namespace

std::unique_ptr<Kernels> make_cpu_kernels(std::size_t threads) { return std::make_unique<CpuKernels>(threads); }

}  // namespace psring
