#include <psring/common/base/text/error.h>
#include <psring/worker/model/cuda/fused_attention.h>

// For builds without cuDNN: see fused_attention.h.

namespace psring::worker::cuda {

FusedAttention::FusedAttention() = default;
FusedAttention::~FusedAttention() = default;

std::shared_ptr<const FusedAttention::Plan> FusedAttention::plan(const AttentionShape& /*shape*/, DType /*type*/) {
  return nullptr;
}
std::size_t FusedAttention::forward_bytes(const Plan& /*plan*/) { return 0; }
std::size_t FusedAttention::backward_bytes(const Plan& /*plan*/) { return 0; }
void FusedAttention::forward(const Plan& /*plan*/, cudaStream_t /*stream*/, ConstElements /*qkv*/, Elements /*out*/,
                             float* /*log_sums*/, void* /*scratch*/) {
  fail(ErrorKind::bug, "attention by cuDNN in a build without it");
}
void FusedAttention::backward(const Plan& /*plan*/, cudaStream_t /*stream*/, ConstElements /*qkv*/,
                              ConstElements /*out*/, const float* /*log_sums*/, ConstElements /*d_out*/,
                              Elements /*d_qkv*/, void* /*scratch*/) {
  fail(ErrorKind::bug, "attention by cuDNN in a build without it");
}

}  // namespace psring::worker::cuda
