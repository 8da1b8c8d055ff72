#include <algorithm>
#include <array>

#include <psring/common/base/text/error.h>
#include <psring/worker/exchange/whole_tensor.h>

namespace psring::worker {
namespace {

/// The part of a tensor that one worker holds, as it tells the others.
struct Held {
  static constexpr std::size_t kMostRanges = 6;
  static constexpr std::size_t kWords = 3 + 2 * kMostRanges;
  using Words = std::array<std::int64_t, kWords>;

  /// Nothing if another worker counts the same elements.
  static Words of(const TensorLayout& own) {
    Words words{};
    if (!own.counted) return words;
    words[0] = 1;
    if (!own.spec.slice) return words;
    const TensorSlice& slice = *own.spec.slice;
    check(slice.ranges.size() <= kMostRanges, "{} ranges of a tensor", slice.ranges.size());
    words[1] = static_cast<std::int64_t>(slice.axis);
    words[2] = static_cast<std::int64_t>(slice.ranges.size());
    for (std::size_t i = 0; i < slice.ranges.size(); ++i) {
      words[3 + 2 * i] = static_cast<std::int64_t>(slice.ranges[i].begin);
      words[4 + 2 * i] = static_cast<std::int64_t>(slice.ranges[i].end);
    }
    return words;
  }

  static TensorSpec spec_of(const Words& words, const TensorSpec& whole) {
    TensorSpec spec = whole;
    if (words[2] == 0) return spec;
    TensorSlice slice{.whole_shape = whole.shape, .axis = static_cast<std::size_t>(words[1]), .ranges = {}};
    std::size_t extent = 0;
    for (std::size_t i = 0; i < static_cast<std::size_t>(words[2]); ++i) {
      slice.ranges.push_back({static_cast<std::size_t>(words[3 + 2 * i]), static_cast<std::size_t>(words[4 + 2 * i])});
      extent += slice.ranges.back().size();
    }
    spec.shape[slice.axis] = extent;
    spec.slice = std::move(slice);
    return spec;
  }
};

}  // namespace

WholeTensor::WholeTensor(const MeshGroups& groups, const TensorSpec& whole, std::size_t stage, const TensorLayout* own,
                         ConstElements values, DType type)
    : elements_(whole.elements()), type_(type), bytes_(elements_ * size_bytes(type)) {
  const std::size_t each = size_bytes(type);
  std::vector<std::byte> part;
  for (std::size_t tensor_rank = 0; tensor_rank < groups.mesh.tensor; ++tensor_rank) {
    const std::size_t root = tensor_rank + groups.mesh.tensor * stage;
    const bool mine = own != nullptr && groups.model->rank() == root;
    Held::Words words = mine ? Held::of(*own) : Held::Words();
    groups.model->broadcast(std::span(words), root).wait();
    if (words[0] == 0) continue;
    const TensorSpec spec = Held::spec_of(words, whole);
    part.resize(spec.elements() * each);
    const Elements here(part.data(), spec.elements(), type);
    if (mine) copy(values, here);
    groups.model->broadcast(here, root).wait();
    for (const Run& run : runs_of(spec, {0, spec.elements()}))
      std::copy_n(part.begin() + static_cast<std::ptrdiff_t>(run.begin * each), run.size * each,
                  bytes_.begin() + static_cast<std::ptrdiff_t>(run.whole_begin * each));
  }
}

}  // namespace psring::worker
