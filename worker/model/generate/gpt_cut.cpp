#include <numeric>

#include <psring/common/base/error.h>
#include <psring/worker/model/generate/gpt_cut.h>

namespace psring::worker {

std::size_t OutputCut::size() const {
  return std::accumulate(ranges.begin(), ranges.end(), std::size_t{0},
                         [](std::size_t sum, Range range) { return sum + range.size(); });
}

std::vector<std::size_t> OutputCut::places() const {
  std::vector<std::size_t> result;
  for (const Range range : ranges)
    for (std::size_t output = range.begin; output < range.end; ++output) result.push_back(output);
  return result;
}

std::vector<std::size_t> OutputCut::own() const {
  std::vector<std::size_t> result(whole, kNone);
  const std::vector<std::size_t> all = places();
  for (std::size_t i = 0; i < all.size(); ++i) result[all[i]] = i;
  return result;
}

GptCut cut_gpt(const GptShape& shape, const TensorPart& part) {
  if (shape.heads % part.size() != 0)
    fail(ErrorKind::usage, "--tensor {}: {} heads of attention are not divisible by {}", part.size(), shape.heads,
         part.size());
  if (shape.vocab < part.size())
    fail(ErrorKind::usage, "--tensor {}: a vocabulary of {} has no token for each part", part.size(), shape.vocab);
  const std::size_t dim = shape.dim;
  const std::size_t head_dim = dim / shape.heads;
  GptCut cut{.heads = part.of(shape.heads), .attention = {3 * dim, {}}};
  for (std::size_t i = 0; i < 3; ++i)
    cut.attention.ranges.push_back({i * dim + cut.heads.begin * head_dim, i * dim + cut.heads.end * head_dim});
  cut.projection = {dim, {part.of(dim)}};
  cut.expansion = {4 * dim, {part.of(4 * dim)}};
  cut.contraction = {dim, {part.of(dim)}};
  cut.tokens = {shape.vocab, {part.of(shape.vocab)}};
  return cut;
}

}  // namespace psring::worker
