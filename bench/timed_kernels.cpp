#include <algorithm>
#include <chrono>
#include <initializer_list>

#include <psring/bench/timed_kernels.h>
#include <psring/common/device/buffer.h>

namespace psring::bench {
namespace {

// Calls before timing: then the kernel is launched as a graph, like a step's kernels.
constexpr std::size_t kWarmUp = 3;
constexpr std::size_t kLaunches = 20;

double total(std::initializer_list<ConstElements> operands) {
  double bytes = 0;
  for (const ConstElements& each : operands) bytes += static_cast<double>(each.size_bytes());
  return bytes;
}

double number(std::size_t value) { return static_cast<double>(value); }

}  // namespace

TimedKernels::TimedKernels(Device& device) : device_(device), kernels_(worker::make_tensor_kernels(device)) {
  MemoryLedger memory;
  Buffer one(sizeof(float), Category::communication, memory, device);
  const auto clear = [&] { device_.clear(one.elements(DType::f32)); };
  for (std::size_t i = 0; i < kWarmUp; ++i) launch_s_ = seconds_of(clear);
  for (std::size_t i = 0; i < kLaunches; ++i) launch_s_ = std::min(launch_s_, seconds_of(clear));
}

double TimedKernels::seconds_of(const auto& call) {
  const Nanoseconds before = device_.stalled();
  {
    const Device::Stall around(device_);
    call();
  }
  device_.wait(device_.mark());
  return std::chrono::duration<double>(device_.stalled() - before).count();
}

void TimedKernels::timed(const char* name, double bytes, double flops, const auto& call) {
  const double seconds = seconds_of(call);
  KernelTime& time = times_[name];
  ++time.calls;
  time.seconds += std::max(0.0, seconds - launch_s_);
  time.bytes += bytes;
  time.flops += flops;
}

void TimedKernels::product(const Product& product) {
  const Gemm& shape = product.shape;
  timed("product", total({product.a, product.b, product.out, product.added, product.kept}),
        2 * number(shape.m) * number(shape.n) * number(shape.k), [&] { kernels_->product(product); });
}

void TimedKernels::layer_norm(Rows shape, ConstElements x, ConstElements weight, ConstElements bias, float* saved,
                              Elements y, bool again) {
  timed("layer norm", total({x, y}), 0, [&] { kernels_->layer_norm(shape, x, weight, bias, saved, y, again); });
}

void TimedKernels::layer_norm_backward(Rows shape, ConstElements x, ConstElements weight, const float* saved,
                                       ConstElements dy, ConstElements residual, Elements dx,
                                       const NormGradients& gradients) {
  timed("layer norm, backward", total({x, dy, residual, dx}), 0,
        [&] { kernels_->layer_norm_backward(shape, x, weight, saved, dy, residual, dx, gradients); });
}

/// Counts half of all pairs of positions: 2 products forward, 5 backward.
void TimedKernels::attention(const AttentionShape& shape, ConstElements qkv, Elements out, float* log_sums) {
  const double products = 2 * number(shape.rows()) * number(shape.context) / 2 * number(shape.dim());
  timed("attention", total({qkv, out}), 2 * products, [&] { kernels_->attention(shape, qkv, out, log_sums); });
}

void TimedKernels::attention_backward(const AttentionShape& shape, ConstElements qkv, ConstElements out,
                                      const float* log_sums, ConstElements d_out, Elements d_qkv) {
  const double products = 2 * number(shape.rows()) * number(shape.context) / 2 * number(shape.dim());
  timed("attention, backward", total({qkv, out, d_out, d_qkv}), 5 * products,
        [&] { kernels_->attention_backward(shape, qkv, out, log_sums, d_out, d_qkv); });
}

void TimedKernels::embedding(Rows shape, std::size_t context, const std::int32_t* ids, ConstElements tokens,
                             ConstElements places, Elements y) {
  timed("embedding", 3 * total({y}), 0, [&] { kernels_->embedding(shape, context, ids, tokens, places, y); });
}

void TimedKernels::embedding_backward(Rows shape, std::size_t context, const TokenRows& tokens, ConstElements dy,
                                      Elements d_tokens, float tokens_beta, Elements d_places, float places_beta) {
  timed("embedding, backward", 2 * total({dy}) + total({d_tokens, d_places}), 0, [&] {
    kernels_->embedding_backward(shape, context, tokens, dy, d_tokens, tokens_beta, d_places, places_beta);
  });
}

void TimedKernels::column_sums(Rows shape, ConstElements dy, float beta, Elements into) {
  timed("column sums", total({dy, into}), 0, [&] { kernels_->column_sums(shape, dy, beta, into); });
}

void TimedKernels::slope(Slope slope, ConstElements value, ConstElements dy, Elements dx) {
  timed("slope", total({value, dy, dx}), 0, [&] { kernels_->slope(slope, value, dy, dx); });
}

void TimedKernels::gelu(ConstElements x, Elements y) {
  timed("gelu", total({x, y}), 0, [&] { kernels_->gelu(x, y); });
}

void TimedKernels::loss(Rows shape, const std::int32_t* targets, float scale, Elements y, LossSums* sums) {
  timed("loss", 2 * total({y}), 0, [&] { kernels_->loss(shape, targets, scale, y, sums); });
}

}  // namespace psring::bench
