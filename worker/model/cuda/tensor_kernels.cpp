#include <memory>
#include <utility>

#include <psring/common/base/text/error.h>
#include <psring/common/device/cuda/kernel_queue.h>
#include <psring/worker/model/cuda/fused_attention.h>
#include <psring/worker/model/cuda/kernels.h>
#include <psring/worker/model/cuda/products.h>
#include <psring/worker/model/cuda/tensor_kernels.h>

namespace psring {

// The keys of types with padding, member by member.

/// Row strides are not part of the key, because products on a device have none.
static void add_to_key(cuda::CallKey& key, const Gemm& shape) {
  key.add(shape.m, shape.n, shape.k, shape.transpose_a, shape.transpose_b);
}

namespace worker {

static void add_to_key(psring::cuda::CallKey& key, const Product& product) {
  key.add(product.shape, product.a, product.b, product.out, product.added, product.bias, product.then, product.kept);
}
static void add_to_key(psring::cuda::CallKey& key, const TensorKernels::NormGradients& gradients) {
  key.add(gradients.weight, gradients.bias, gradients.weight_beta, gradients.bias_beta);
}

namespace cuda {
namespace {

class CudaTensorKernels final : public TensorKernels {
 public:
  explicit CudaTensorKernels(KernelQueue& queue) : queue_(queue) {}
  /// Launches the pending kernels and forgets their graphs, which use the libraries' plans.
  ~CudaTensorKernels() override {
    try {
      check_launch(cudaStreamSynchronize(queue_.flushed().stream), "cudaStreamSynchronize");
    } catch (const Error&) {  // has ended the job already, or ends it in the next call
    }
    queue_.launches().forget();
  }
  CudaTensorKernels(const CudaTensorKernels&) = delete;
  CudaTensorKernels& operator=(const CudaTensorKernels&) = delete;

  void product(const Product& product) override {
    void* const workspace = queue_.workspace(Products::kWorkspaceBytes);
    if (!products_) products_ = std::make_shared<Products>();
    CallKey key;
    key.add(product);
    queue_.add(std::move(key), [products = products_, workspace, product](const Queue& queue) {
      if (!products->run(product, workspace, queue)) return;
      Product rest = product;
      rest.added = {};
      check_launch(finish_product(queue, {product.shape.m, product.shape.n}, rest), "finish_product");
    });
  }

  void layer_norm(Rows shape, ConstElements x, ConstElements weight, ConstElements bias, float* saved, Elements y,
                  bool again) override {
    queue_.call("layer_norm", &cuda::layer_norm, shape, x, weight, bias, saved, y, again);
  }
  void layer_norm_backward(Rows shape, ConstElements x, ConstElements weight, const float* saved, ConstElements dy,
                           ConstElements residual, Elements dx, const NormGradients& gradients) override {
    if (dx.empty() && gradients.weight.empty()) return;
    queue_.call("layer_norm_backward", &cuda::layer_norm_backward, shape, x, weight, saved, dy, residual, dx, gradients,
                queue_.scratch(norm_scratch(shape)));
  }

  void attention(const AttentionShape& shape, ConstElements qkv, Elements out, float* log_sums) override {
    if (const auto plan = fused_.plan(shape, qkv.type())) {
      void* const scratch = scratch_bytes(FusedAttention::forward_bytes(*plan));
      CallKey key;
      key.add(&FusedAttention::forward, shape.batch, shape.context, shape.heads, shape.head_dim, qkv, out, log_sums,
              scratch);
      queue_.add(std::move(key), [=](const Queue& queue) {
        FusedAttention::forward(*plan, queue.stream, qkv, out, log_sums, scratch);
      });
      return;
    }
    queue_.call("attention", &cuda::attention, shape, qkv, out, log_sums);
  }
  void attention_backward(const AttentionShape& shape, ConstElements qkv, ConstElements out, const float* log_sums,
                          ConstElements d_out, Elements d_qkv) override {
    if (const auto plan = fused_.plan(shape, qkv.type())) {
      void* const scratch = scratch_bytes(FusedAttention::backward_bytes(*plan));
      CallKey key;
      key.add(&FusedAttention::backward, shape.batch, shape.context, shape.heads, shape.head_dim, qkv, out, log_sums,
              d_out, d_qkv, scratch);
      queue_.add(std::move(key), [=](const Queue& queue) {
        FusedAttention::backward(*plan, queue.stream, qkv, out, log_sums, d_out, d_qkv, scratch);
      });
      return;
    }
    queue_.call("attention_backward", &cuda::attention_backward, shape, qkv, out, log_sums, d_out, d_qkv,
                queue_.scratch(shape.head_rows()));
  }

  void embedding(Rows shape, std::size_t context, const std::int32_t* ids, ConstElements tokens, ConstElements places,
                 Elements y) override {
    queue_.call("embedding", &cuda::embedding, shape, context, ids, tokens, places, y);
  }
  void embedding_backward(Rows shape, std::size_t context, const TokenRows& tokens, ConstElements dy, Elements d_tokens,
                          float tokens_beta, Elements d_places, float places_beta) override {
    if (tokens_beta == 0) clear(d_tokens);
    queue_.call("embedding_tokens", &embedding_tokens, shape, tokens, dy, d_tokens);
    queue_.call("embedding_places", &embedding_places, shape, context, dy, d_places, places_beta);
  }

  void column_sums(Rows shape, ConstElements dy, float beta, Elements into) override {
    queue_.call("column_sums", &cuda::column_sums, shape, dy, beta, into, queue_.scratch(column_scratch(shape)));
  }
  void slope(Slope slope, ConstElements value, ConstElements dy, Elements dx) override {
    queue_.call("slope", &cuda::slope, slope, value, dy, dx);
  }
  void gelu(ConstElements x, Elements y) override { queue_.call("gelu", &cuda::gelu, x, y); }

  void loss(Rows shape, const std::int32_t* targets, float scale, Elements y, LossSums* sums) override {
    queue_.call("loss", &cuda::loss, shape, targets, scale, y, sums, queue_.scratch(2 * shape.rows));
  }

 private:
  void* scratch_bytes(std::size_t bytes) { return queue_.scratch((bytes + sizeof(float) - 1) / sizeof(float)); }

  KernelQueue& queue_;
  FusedAttention fused_;
  std::shared_ptr<Products> products_;  ///< shared: pending kernels use it; empty before the first product
};

}  // namespace

std::unique_ptr<TensorKernels> make_tensor_kernels(Device& device) {
  return std::make_unique<CudaTensorKernels>(kernel_queue_of(device));
}

}  // namespace cuda
}  // namespace worker
}  // namespace psring
