#include <algorithm>

#include <psring/server/aggregation.h>

namespace psring::server {

Aggregation::Aggregation(const Aggregator& rule, std::span<const ConstElements> gradients)
    : rule_(rule), gradients_(gradients), inputs_(gradients.size()) {
  if (!gradients.empty() && gradients[0].type() != DType::f32) widened_.resize((gradients.size() + 1) * kElementsBlock);
}

void Aggregation::run(Range part, Elements out) {
  if (out.type() == DType::f32) {
    for (std::size_t k = 0; k < inputs_.size(); ++k) inputs_[k] = gradients_[k].part(part).as<float>().data();
    return rule_.aggregate(inputs_, out.as<float>());
  }
  for (std::size_t begin = 0; begin < part.size(); begin += kElementsBlock) {
    const Range block{begin, std::min(part.size(), begin + kElementsBlock)};
    const auto room = [&](std::size_t k) { return std::span(widened_).subspan(k * kElementsBlock, block.size()); };
    for (std::size_t k = 0; k < inputs_.size(); ++k) {
      widen(gradients_[k].part(part).part(block), room(k));
      inputs_[k] = room(k).data();
    }
    rule_.aggregate(inputs_, room(inputs_.size()));
    narrow(room(inputs_.size()), out.part(block));
  }
}

}  // namespace psring::server
