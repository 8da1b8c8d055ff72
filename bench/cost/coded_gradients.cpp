#include <psring/bench/cost/coded_gradients.h>
#include <psring/optim/codec/power_sgd.h>

namespace psring::bench {

CodedGradients::CodedGradients(const JobOptions& job, const Layout& layout)
    : layout_(layout),
      codec_(optim::make_codec(job.compress, job.error_feedback)),
      rank_(optim::power_sgd_rank(job.compress)) {}

std::optional<CodedGradients::Factors> CodedGradients::factors(Range units) const {
  if (!rank_) return std::nullopt;
  Factors bytes;
  for (std::size_t unit = units.begin; unit < units.end; ++unit) {
    if (!layout_.units[unit].trained) continue;
    for (const TensorLayout& tensor : layout_.units[unit].tensors) {
      const auto dims = optim::low_rank(tensor.spec.shape, *rank_);
      bytes.first += 4 * static_cast<double>(dims ? dims->p_elements() : tensor.spec.elements());
      if (dims) bytes.second += 4 * static_cast<double>(dims->q_elements());
    }
  }
  return bytes;
}

}  // namespace psring::bench
