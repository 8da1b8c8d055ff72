#include <algorithm>
#include <array>
#include <chrono>
#include <map>
#include <optional>
#include <span>
#include <tuple>
#include <vector>

#include <cublasLt.h>

#include <psring/common/base/text/error.h>
#include <psring/common/device/cuda/errors.h>
#include <psring/common/device/cuda/handles.h>
#include <psring/worker/model/cuda/kernels.h>
#include <psring/worker/model/cuda/products.h>

namespace psring::worker::cuda {
namespace {

void check_lt(cublasStatus_t status, const char* call) {
  if (status != CUBLAS_STATUS_SUCCESS)
    fail(status == CUBLAS_STATUS_ALLOC_FAILED ? ErrorKind::data : ErrorKind::bug, "{}: {}", call,
         cublasLtGetStatusString(status));
}

cudaDataType_t type_of(DType type) {
  switch (type) {
    case DType::f32:
      return CUDA_R_32F;
    case DType::f16:
      return CUDA_R_16F;
    case DType::bf16:
      return CUDA_R_16BF;
    default:
      fail(ErrorKind::bug, "no matrix product of {}", name_of(type));
  }
}

/// The layout of a row-major matrix with `cols` columns. cuBLASLt sees the matrix transposed: with `cols` rows.
class Layout {
 public:
  Layout(DType type, std::size_t rows, std::size_t cols) {
    check_lt(cublasLtMatrixLayoutCreate(&handle_, type_of(type), cols, rows, static_cast<std::int64_t>(cols)),
             "cublasLtMatrixLayoutCreate");
  }
  ~Layout() { cublasLtMatrixLayoutDestroy(handle_); }
  Layout(const Layout&) = delete;
  Layout& operator=(const Layout&) = delete;
  operator cublasLtMatrixLayout_t() const { return handle_; }

 private:
  cublasLtMatrixLayout_t handle_ = nullptr;
};

/// Returns whether the product has a bias or a function to fuse.
bool wants_epilogue(const Product& product) { return !product.bias.empty() || product.then != Product::Then::nothing; }

/// Returns nothing if no fused kernel should be used. Fused kernels with GELU are used only for 16-bit types, because
/// the precision of their tanh is not documented, and only if n is a multiple of 8, as the rows of `kept` require.
std::optional<cublasLtEpilogue_t> epilogue_of(const Product& product) {
  const bool bias = !product.bias.empty();
  const bool gelu = product.out.type() != DType::f32 && product.shape.n % 8 == 0;
  switch (product.then) {
    case Product::Then::nothing:
      return bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
    case Product::Then::relu:
      return bias ? CUBLASLT_EPILOGUE_RELU_BIAS : CUBLASLT_EPILOGUE_RELU;
    case Product::Then::gelu:
      if (!gelu) return std::nullopt;
      return bias ? CUBLASLT_EPILOGUE_GELU_AUX_BIAS : CUBLASLT_EPILOGUE_GELU_AUX;
    case Product::Then::times_gelu_gradient:
      if (!gelu || bias) return std::nullopt;
      return CUBLASLT_EPILOGUE_DGELU;
  }
  return std::nullopt;
}

/// Returns the largest power of two, up to 256, that divides the address.
std::uint32_t alignment_of(const void* at) {
  const auto address = reinterpret_cast<std::uintptr_t>(at);
  return address == 0 ? 256 : static_cast<std::uint32_t>(std::min<std::uintptr_t>(address & (~address + 1), 256));
}

/// Returns whether the library has no kernel for the request, so that another algorithm may work.
bool refuses(cublasStatus_t status) {
  return status == CUBLAS_STATUS_NOT_SUPPORTED || status == CUBLAS_STATUS_INVALID_VALUE ||
         status == CUBLAS_STATUS_ARCH_MISMATCH || status == CUBLAS_STATUS_INTERNAL_ERROR ||
         status == CUBLAS_STATUS_EXECUTION_FAILED;
}

/// Products with fewer operations are over before a choice of algorithms would show.
constexpr double kLeastCompared = 1 << 24;
/// A run that takes longer is compared by itself, a shorter one by the next kComparedRuns.
constexpr Nanoseconds kLongRun = std::chrono::milliseconds(1);
constexpr int kComparedRuns = 3;
constexpr unsigned kTries = 8;  ///< to compare algorithms, if the products before told nothing

/// Computes digests; waits for the stream.
class Digests {
 public:
  Digests() { check_call(cudaMalloc(&parts_, kDigestParts * sizeof(Digest)), "cudaMalloc"); }
  ~Digests() { cudaFree(parts_); }
  Digests(const Digests&) = delete;
  Digests& operator=(const Digests&) = delete;

  Digest of(ConstElements elements, const Queue& queue) {
    std::array<Digest, kDigestParts> parts{};
    check_call(digest(queue, elements, static_cast<Digest*>(parts_)), "digest");
    check_call(cudaMemcpyAsync(parts.data(), parts_, sizeof(parts), cudaMemcpyDeviceToHost, queue.stream),
               "cudaMemcpyAsync");
    check_call(cudaStreamSynchronize(queue.stream), "cudaStreamSynchronize");
    Digest sum;
    for (const Digest& part : parts) sum = {sum.bits + part.bits, sum.numbers + part.numbers};
    return sum;
  }
  /// Returns whether an eighth of the elements are finite numbers other than 0.
  bool varied(ConstElements elements, const Queue& queue) { return of(elements, queue).numbers >= elements.size() / 8; }

 private:
  void* parts_ = nullptr;
};

bool is_captured(cudaStream_t stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  check_call(cudaStreamIsCapturing(stream, &status), "cudaStreamIsCapturing");
  return status != cudaStreamCaptureStatusNone;
}

/// The way to call a product of one shape and kind.
class Plan {
 public:
  Plan(cublasLtHandle_t handle, const Product& p, cublasLtEpilogue_t epilogue)
      : a_(p.a.type(), p.shape.transpose_a ? p.shape.k : p.shape.m, p.shape.transpose_a ? p.shape.m : p.shape.k),
        b_(p.b.type(), p.shape.transpose_b ? p.shape.n : p.shape.k, p.shape.transpose_b ? p.shape.k : p.shape.n),
        out_(p.out.type(), p.shape.m, p.shape.n) {
    check_lt(cublasLtMatmulDescCreate(&description_, CUBLAS_COMPUTE_32F, CUDA_R_32F), "cublasLtMatmulDescCreate");
    // out^T = op(B)^T op(A)^T: B comes first.
    set(CUBLASLT_MATMUL_DESC_TRANSA, p.shape.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N);
    set(CUBLASLT_MATMUL_DESC_TRANSB, p.shape.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N);
    set(CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue);
    if (!p.bias.empty()) set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, type_of(p.bias.type()));
    if (!p.kept.empty()) set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, static_cast<std::int64_t>(p.shape.n));
    point(p);
    find(handle, p);
  }
  ~Plan() { cublasLtMatmulDescDestroy(description_); }
  Plan(const Plan&) = delete;
  Plan& operator=(const Plan&) = delete;

  /// Queues the product. Returns the last error if no algorithm is accepted.
  cublasStatus_t run(cublasLtHandle_t handle, const Product& p, void* workspace, const Queue& queue, Digests& digests) {
    point(p);
    while (!algorithms_.empty()) {
      status_ = call(handle, p, algorithms_.front(), workspace, queue.stream);
      if (status_ == CUBLAS_STATUS_SUCCESS) break;
      if (!refuses(status_)) check_lt(status_, "cublasLtMatmul");
      algorithms_.erase(algorithms_.begin());
    }
    const double operations =
        2.0 * static_cast<double>(p.shape.m) * static_cast<double>(p.shape.n) * static_cast<double>(p.shape.k);
    const bool runs_again = p.added.data() != p.out.data();
    if (tries_ > 0 && algorithms_.size() > 1 && operations >= kLeastCompared && runs_again &&
        !is_captured(queue.stream)) {
      --tries_;
      compare(handle, p, workspace, queue, digests);
    }
    return status_;
  }

 private:
  template <class Value>
  void set(cublasLtMatmulDescAttributes_t attribute, const Value& value) {
    check_lt(cublasLtMatmulDescSetAttribute(description_, attribute, &value, sizeof(value)),
             "cublasLtMatmulDescSetAttribute");
  }
  void point(const Product& p) {
    const void* bias = p.bias.data();
    if (bias != nullptr) set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias);
    void* kept = p.kept.data();
    if (kept != nullptr) set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, kept);
  }

  cublasStatus_t call(cublasLtHandle_t handle, const Product& p, const cublasLtMatmulAlgo_t& algorithm, void* workspace,
                      cudaStream_t stream) {
    const float one = 1;
    const float beta = p.added.empty() ? 0 : 1;
    const void* added = p.added.empty() ? p.out.data() : p.added.data();
    return cublasLtMatmul(handle, description_, &one, p.b.data(), b_, p.a.data(), a_, &beta, added, out_, p.out.data(),
                          out_, &algorithm, workspace, Products::kWorkspaceBytes, stream);
  }

  /// Puts the fastest algorithm of those with the first one's bits in front. The product has run by the first, and runs
  /// again: REQUIRES that its output is none of its inputs. If a different order of summation would not show in the
  /// output, as in one of zeros or NaN, all stays as it is: 16-bit results of one sum differ in one of some 10,000.
  void compare(cublasLtHandle_t handle, const Product& p, void* workspace, const Queue& queue, Digests& digests) {
    const Digest first = digests.of(p.out, queue);
    const std::uint64_t enough = p.out.type() == DType::f32 ? 1U << 12U : 1U << 17U;
    if (first.numbers < enough || !digests.varied(p.a, queue) || !digests.varied(p.b, queue)) return;
    Event begin(cudaEventDefault);
    Event end(cudaEventDefault);
    const auto time_of = [&](const cublasLtMatmulAlgo_t& algorithm, int runs) -> std::optional<Nanoseconds> {
      begin.record(queue.stream);
      for (int i = 0; i < runs; ++i)
        if (call(handle, p, algorithm, workspace, queue.stream) != CUBLAS_STATUS_SUCCESS) return std::nullopt;
      end.record(queue.stream);
      end.wait();
      return end.since(begin) / runs;
    };
    std::size_t best = 0;
    Nanoseconds least = Nanoseconds::max();
    for (std::size_t i = 0; i < algorithms_.size(); ++i) {
      auto time = time_of(algorithms_[i], 1);
      if (!time || digests.of(p.out, queue).bits != first.bits) continue;
      if (*time < kLongRun) time = time_of(algorithms_[i], kComparedRuns);  // the first run loads the kernel
      if (!time || *time >= least) continue;
      best = i;
      least = *time;
    }
    std::swap(algorithms_.front(), algorithms_[best]);
    tries_ = 0;
    check_lt(call(handle, p, algorithms_.front(), workspace, queue.stream), "cublasLtMatmul");
  }

  void find(cublasLtHandle_t handle, const Product& p) {
    cublasLtMatmulPreference_t preference = nullptr;
    check_lt(cublasLtMatmulPreferenceCreate(&preference), "cublasLtMatmulPreferenceCreate");
    const auto prefer = [&](cublasLtMatmulPreferenceAttributes_t attribute, const auto& value) {
      check_lt(cublasLtMatmulPreferenceSetAttribute(preference, attribute, &value, sizeof(value)),
               "cublasLtMatmulPreferenceSetAttribute");
    };
    prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, Products::kWorkspaceBytes);
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, alignment_of(p.b.data()));
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, alignment_of(p.a.data()));
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES,
           p.added.empty() ? alignment_of(p.out.data()) : alignment_of(p.added.data()));
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, alignment_of(p.out.data()));
    // Split sums are added up in f32.
    prefer(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, std::uint32_t{CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE});
    std::array<cublasLtMatmulHeuristicResult_t, 8> results{};
    int count = 0;
    status_ = cublasLtMatmulAlgoGetHeuristic(handle, description_, b_, a_, out_, out_, preference,
                                             static_cast<int>(results.size()), results.data(), &count);
    cublasLtMatmulPreferenceDestroy(preference);
    if (status_ != CUBLAS_STATUS_SUCCESS) {
      if (!refuses(status_)) check_lt(status_, "cublasLtMatmulAlgoGetHeuristic");
      return;
    }
    status_ = CUBLAS_STATUS_NOT_SUPPORTED;
    for (const auto& result : std::span(results).first(static_cast<std::size_t>(count)))
      if (result.state == CUBLAS_STATUS_SUCCESS) algorithms_.push_back(result.algo);
  }

  Layout a_;
  Layout b_;
  Layout out_;
  cublasLtMatmulDesc_t description_ = nullptr;
  std::vector<cublasLtMatmulAlgo_t>
      algorithms_;           ///< those not refused so far, in the heuristic's order, but see compare
  unsigned tries_ = kTries;  ///< left, to compare the algorithms
  cublasStatus_t status_ = CUBLAS_STATUS_NOT_SUPPORTED;  ///< of the last call
};

}  // namespace

struct Products::Plans {
  using Key = std::tuple<std::size_t, std::size_t, std::size_t, bool, bool, DType, DType, cublasLtEpilogue_t,
                         std::array<std::uint32_t, 6>>;

  Plans() { check_lt(cublasLtCreate(&handle), "cublasLtCreate"); }
  ~Plans() {
    by_key.clear();
    cublasLtDestroy(handle);
  }

  Plan& plan(const Product& p, cublasLtEpilogue_t epilogue) {
    const Key key{p.shape.m,
                  p.shape.n,
                  p.shape.k,
                  p.shape.transpose_a,
                  p.shape.transpose_b,
                  p.a.type(),
                  p.out.type(),
                  epilogue,
                  {alignment_of(p.a.data()), alignment_of(p.b.data()), alignment_of(p.out.data()),
                   alignment_of(p.added.data()), alignment_of(p.bias.data()), alignment_of(p.kept.data())}};
    auto at = by_key.find(key);
    if (at == by_key.end()) at = by_key.emplace(key, std::make_unique<Plan>(handle, p, epilogue)).first;
    return *at->second;
  }

  cublasLtHandle_t handle = nullptr;
  Digests digests;
  std::map<Key, std::unique_ptr<Plan>> by_key;
};

Products::Products() : plans_(std::make_unique<Plans>()) {}
Products::~Products() = default;

bool Products::run(const Product& product, void* workspace, const Queue& queue) {
  check(product.shape.lda == 0 && product.shape.ldb == 0 && product.shape.ldc == 0, "matrices with gaps on a device");
  if (const auto epilogue = epilogue_of(product)) {
    Plan& plan = plans_->plan(product, *epilogue);
    if (plan.run(plans_->handle, product, workspace, queue, plans_->digests) == CUBLAS_STATUS_SUCCESS) return false;
  }
  Product plain = product;
  plain.bias = {};
  plain.then = Product::Then::nothing;
  plain.kept = {};
  const cublasStatus_t status =
      plans_->plan(plain, CUBLASLT_EPILOGUE_DEFAULT).run(plans_->handle, plain, workspace, queue, plans_->digests);
  if (status != CUBLAS_STATUS_SUCCESS)
    fail(ErrorKind::bug, "cuBLASLt: {}: a product of {} x {} x {} in {}", cublasLtGetStatusString(status),
         product.shape.m, product.shape.n, product.shape.k, name_of(product.a.type()));
  return wants_epilogue(product);
}

}  // namespace psring::worker::cuda
