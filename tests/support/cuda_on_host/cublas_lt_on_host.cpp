#include <cmath>
#include <cstring>
#include <vector>

#include <cublasLt.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>

struct cublasLtOnHost {};
struct cublasLtOnHostPreference {};
struct cublasLtOnHostDesc {
  cublasOperation_t a = CUBLAS_OP_N;
  cublasOperation_t b = CUBLAS_OP_N;
  cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  const void* bias = nullptr;
  void* aux = nullptr;
  std::int64_t aux_ld = 0;
  cudaDataType_t bias_type = CUDA_R_32F;
};
struct cublasLtOnHostLayout {
  cudaDataType_t type;
  std::uint64_t rows, cols;
  std::int64_t ld;
};

namespace {

constexpr std::uint64_t kUsable = 7;
constexpr std::uint64_t kFaster = 9;   ///< takes half the time, and adds up in another order: it has other bits
constexpr std::uint64_t kRefused = 8;  ///< the heuristic gives it, and the product does not take it

double read(cudaDataType_t type, const void* from, std::size_t i) {
  switch (type) {
    case CUDA_R_16F:
      return static_cast<double>(__half2float(static_cast<const __half*>(from)[i]));
    case CUDA_R_16BF:
      return static_cast<double>(__bfloat162float(static_cast<const __nv_bfloat16*>(from)[i]));
    default:
      return static_cast<double>(static_cast<const float*>(from)[i]);
  }
}
void write(cudaDataType_t type, void* to, std::size_t i, double value) {
  const auto rounded = static_cast<float>(value);
  switch (type) {
    case CUDA_R_16F:
      static_cast<__half*>(to)[i] = __float2half_rn(rounded);
      return;
    case CUDA_R_16BF:
      static_cast<__nv_bfloat16*>(to)[i] = __float2bfloat16_rn(rounded);
      return;
    default:
      static_cast<float*>(to)[i] = rounded;
  }
}

double tanh_of(double x) { return std::tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)); }
double gelu(double x) { return 0.5 * x * (1 + tanh_of(x)); }
double gelu_slope(double x) {
  const double t = tanh_of(x);
  return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * 0.7978845608028654 * (1 + 3 * 0.044715 * x * x);
}

template <class T>
void assign(T& to, const void* value, std::size_t bytes) {
  if (bytes != sizeof(T)) cuda_on_host::die("an attribute of another size");
  std::memcpy(&to, value, bytes);
}

struct Call {
  cublasLtOnHostDesc desc;
  const void* a;
  cublasLtOnHostLayout of_a;
  const void* b;
  cublasLtOnHostLayout of_b;
  double beta;
  const void* c;
  void* d;
  cublasLtOnHostLayout of_d;
  bool other_bits;

  void run() const {
    const std::size_t depth = desc.a == CUBLAS_OP_N ? of_a.cols : of_a.rows;
    if (depth != (desc.b == CUBLAS_OP_N ? of_b.rows : of_b.cols)) cuda_on_host::die("matrices that do not fit");
    if ((desc.a == CUBLAS_OP_N ? of_a.rows : of_a.cols) != of_d.rows ||
        (desc.b == CUBLAS_OP_N ? of_b.cols : of_b.rows) != of_d.cols)
      cuda_on_host::die("a product that does not fit");
    for (std::size_t col = 0; col < of_d.cols; ++col)
      for (std::size_t row = 0; row < of_d.rows; ++row) {
        double sum = 0;
        for (std::size_t k = 0; k < depth; ++k) sum += at(desc.a, a, of_a, row, k) * at(desc.b, b, of_b, k, col);
        const std::size_t index = col * static_cast<std::size_t>(of_d.ld) + row;
        if (beta != 0) sum += beta * read(of_d.type, c, index);
        write(of_d.type, d, index, finished(sum, row, col));
        if (other_bits) static_cast<std::uint8_t*>(d)[index * (of_d.type == CUDA_R_32F ? 4 : 2)] ^= 1;
      }
  }

 private:
  static double at(cublasOperation_t operation, const void* from, const cublasLtOnHostLayout& layout, std::size_t row,
                   std::size_t col) {
    if (operation == CUBLAS_OP_T) std::swap(row, col);
    return read(layout.type, from, col * static_cast<std::size_t>(layout.ld) + row);
  }
  double finished(double x, std::size_t row, std::size_t col) const {
    const std::size_t kept = col * static_cast<std::size_t>(desc.aux_ld) + row;
    if ((desc.epilogue & CUBLASLT_EPILOGUE_BIAS) != 0) x += read(desc.bias_type, desc.bias, row);
    switch (desc.epilogue) {
      case CUBLASLT_EPILOGUE_RELU:
      case CUBLASLT_EPILOGUE_RELU_BIAS:
        return x < 0 ? 0 : x;
      case CUBLASLT_EPILOGUE_GELU_AUX:
      case CUBLASLT_EPILOGUE_GELU_AUX_BIAS:
        write(of_d.type, desc.aux, kept, x);
        return gelu(x);
      case CUBLASLT_EPILOGUE_DGELU:
        return x * gelu_slope(read(of_d.type, desc.aux, kept));
      default:
        return x;
    }
  }
};

}  // namespace

const char* cublasLtGetStatusString(cublasStatus_t) { return "a status"; }
cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  *handle = new cublasLtOnHost;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
  delete handle;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* layout, cudaDataType_t type, std::uint64_t rows,
                                          std::uint64_t cols, std::int64_t ld) {
  *layout = new cublasLtOnHostLayout{type, rows, cols, ld};
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
  delete layout;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* desc, cublasComputeType_t, cudaDataType_t) {
  *desc = new cublasLtOnHostDesc;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t desc, cublasLtMatmulDescAttributes_t attribute,
                                              const void* value, std::size_t bytes) {
  switch (attribute) {
    case CUBLASLT_MATMUL_DESC_TRANSA:
      assign(desc->a, value, bytes);
      break;
    case CUBLASLT_MATMUL_DESC_TRANSB:
      assign(desc->b, value, bytes);
      break;
    case CUBLASLT_MATMUL_DESC_EPILOGUE:
      assign(desc->epilogue, value, bytes);
      break;
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
      assign(desc->bias, value, bytes);
      break;
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER:
      assign(desc->aux, value, bytes);
      break;
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD:
      assign(desc->aux_ld, value, bytes);
      break;
    case CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE:
      assign(desc->bias_type, value, bytes);
      break;
  }
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t desc) {
  delete desc;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* preference) {
  *preference = new cublasLtOnHostPreference;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t, cublasLtMatmulPreferenceAttributes_t,
                                                    const void*, std::size_t) {
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
  delete preference;
  return CUBLAS_STATUS_SUCCESS;
}
/// As the library, whose fused kernels want rows of 8 elements, it has none for others: callers must do without. The
/// first algorithm of the list is refused by the product, and where rows are no multiples of 16 elements, every
/// algorithm of a fused one.
cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t desc, cublasLtMatrixLayout_t,
                                              cublasLtMatrixLayout_t, cublasLtMatrixLayout_t, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t, int most,
                                              cublasLtMatmulHeuristicResult_t* results, int* found) {
  *found = 0;
  if (desc->epilogue != CUBLASLT_EPILOGUE_DEFAULT && d->rows % 8 != 0) return CUBLAS_STATUS_NOT_SUPPORTED;
  if (most > 1) results[(*found)++] = {{{0}}, CUBLAS_STATUS_NOT_SUPPORTED};  // not all that are told of can be used
  if (*found < most) results[(*found)++] = {{{kRefused}}, CUBLAS_STATUS_SUCCESS};
  if (desc->epilogue != CUBLASLT_EPILOGUE_DEFAULT && d->rows % 16 != 0) return CUBLAS_STATUS_SUCCESS;
  if (*found < most) results[(*found)++] = {{{kUsable}}, CUBLAS_STATUS_SUCCESS};
  if (*found < most) results[(*found)++] = {{{kFaster}}, CUBLAS_STATUS_SUCCESS};
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t desc, const void* alpha, const void* a,
                              cublasLtMatrixLayout_t of_a, const void* b, cublasLtMatrixLayout_t of_b, const void* beta,
                              const void* c, cublasLtMatrixLayout_t, void* d, cublasLtMatrixLayout_t of_d,
                              const cublasLtMatmulAlgo_t* algorithm, void*, std::size_t, cudaStream_t stream) {
  if (algorithm->data[0] == kRefused) return CUBLAS_STATUS_NOT_SUPPORTED;
  const bool faster = algorithm->data[0] == kFaster;
  if (!faster && algorithm->data[0] != kUsable) cuda_on_host::die("a product by an algorithm that cannot be used");
  if (*static_cast<const float*>(alpha) != 1) cuda_on_host::die("a product times something");
  const Call call{*desc, a, *of_a, b,     *of_b, static_cast<double>(*static_cast<const float*>(beta)),
                  c,     d, *of_d, faster};
  cuda_on_host::queue(stream, [call] {
    call.run();
    if (!call.other_bits && (call.beta == 0 || call.c != call.d)) call.run();
  });
  return CUBLAS_STATUS_SUCCESS;
}
