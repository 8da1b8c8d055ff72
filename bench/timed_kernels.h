#pragma once

#include <map>
#include <memory>
#include <string>

#include <psring/bench/gpu_step.h>
#include <psring/common/device/device.h>
#include <psring/worker/model/device/tensor_kernels.h>

namespace psring::bench {

using worker::AttentionShape;
using worker::LossSums;
using worker::Product;
using worker::Rows;
using worker::TensorKernels;
using worker::TokenRows;

/// Wraps a device's kernels: each call is waited for and timed on the device. The time of a launch into an empty queue
/// is subtracted; it is the minimum time for clearing one float.
class TimedKernels final : public TensorKernels {
 public:
  explicit TimedKernels(Device& device);

  /// Times since the last `clear`, by kernel.
  const std::map<std::string, KernelTime>& times() const { return times_; }
  void clear() { times_.clear(); }

  void product(const Product& product) override;
  void layer_norm(Rows shape, ConstElements x, ConstElements weight, ConstElements bias, float* saved, Elements y,
                  bool again) override;
  void layer_norm_backward(Rows shape, ConstElements x, ConstElements weight, const float* saved, ConstElements dy,
                           ConstElements residual, Elements dx, const NormGradients& gradients) override;
  void attention(const AttentionShape& shape, ConstElements qkv, Elements out, float* log_sums) override;
  void attention_backward(const AttentionShape& shape, ConstElements qkv, ConstElements out, const float* log_sums,
                          ConstElements d_out, Elements d_qkv) override;
  void embedding(Rows shape, std::size_t context, const std::int32_t* ids, ConstElements tokens, ConstElements places,
                 Elements y) override;
  void embedding_backward(Rows shape, std::size_t context, const TokenRows& tokens, ConstElements dy, Elements d_tokens,
                          float tokens_beta, Elements d_places, float places_beta) override;
  void column_sums(Rows shape, ConstElements dy, float beta, Elements into) override;
  void slope(Slope slope, ConstElements value, ConstElements dy, Elements dx) override;
  void gelu(ConstElements x, Elements y) override;
  void loss(Rows shape, const std::int32_t* targets, float scale, Elements y, LossSums* sums) override;

 private:
  void timed(const char* name, double bytes, double flops, const auto& call);
  double seconds_of(const auto& call);

  Device& device_;
  const std::unique_ptr<TensorKernels> kernels_;
  double launch_s_ = 0;
  std::map<std::string, KernelTime> times_;
};

}  // namespace psring::bench
