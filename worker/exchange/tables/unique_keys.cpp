#include <algorithm>
#include <bit>

#include <psring/common/base/text/error.h>
#include <psring/worker/exchange/tables/unique_keys.h>

namespace psring::worker {
namespace {

constexpr std::size_t kAhead = 16;  ///< keys between a prefetch and the look at the key's slot
constexpr unsigned kMostBits = 16;  ///< of the keys' groups

std::size_t slots_for(std::size_t most) { return std::bit_ceil(std::max<std::size_t>(2 * most, 16)); }

}  // namespace

UniqueKeys::UniqueKeys(std::size_t most)
    : slots_(slots_for(most)), ranks_(most), from_(most), found_(most), groups_((std::size_t{1} << kMostBits) + 1) {}

std::size_t UniqueKeys::size_bytes(std::size_t most) {
  return slots_for(most) * sizeof(Slot) + most * (2 * sizeof(std::uint32_t) + sizeof(std::uint64_t)) +
         ((std::size_t{1} << kMostBits) + 1) * sizeof(std::uint32_t);
}

std::size_t UniqueKeys::find(std::span<const std::uint64_t> keys, std::span<std::uint64_t> unique,
                             std::span<std::uint32_t> places) {
  check(keys.size() <= found_.size() && unique.size() >= keys.size() && places.size() >= keys.size(),
        "{} keys, at most {} expected", keys.size(), found_.size());
  if (++batch_ == 0) {  // the counter has come round
    std::fill(slots_.begin(), slots_.end(), Slot());
    batch_ = 1;
  }
  const std::size_t mask = slots_.size() - 1;
  std::uint32_t count = 0;
  for (std::size_t i = 0; i < keys.size(); ++i) {
    if (i + kAhead < keys.size()) __builtin_prefetch(&slots_[keys[i + kAhead] & mask], 1);
    std::size_t at = keys[i] & mask;
    while (slots_[at].batch == batch_ && slots_[at].key != keys[i]) at = (at + 1) & mask;
    if (slots_[at].batch != batch_) {
      found_[count] = keys[i];
      slots_[at] = {keys[i], count++, batch_};
    }
    places[i] = slots_[at].place;
  }
  sort(unique.first(count));
  for (std::size_t i = 0; i < keys.size(); ++i) places[i] = ranks_[places[i]];
  return count;
}

/// Writes found_ in ascending order, and ranks_.
void UniqueKeys::sort(std::span<std::uint64_t> unique) {
  const std::size_t count = unique.size();
  const unsigned bits = std::min<unsigned>(kMostBits, static_cast<unsigned>(std::bit_width(count)));
  const auto group = [&](std::uint64_t key) { return bits == 0 ? 0 : static_cast<std::size_t>(key >> (64 - bits)); };
  const std::span<std::uint32_t> ends = std::span(groups_).first((std::size_t{1} << bits) + 1);
  std::fill(ends.begin(), ends.end(), 0U);
  for (std::size_t i = 0; i < count; ++i) ++ends[group(found_[i]) + 1];
  for (std::size_t g = 1; g < ends.size(); ++g) ends[g] += ends[g - 1];
  for (std::uint32_t i = 0; i < count; ++i) {
    const std::uint32_t at = ends[group(found_[i])]++;
    unique[at] = found_[i];
    from_[at] = i;
  }
  for (std::size_t i = 1; i < count; ++i) {
    const std::uint64_t key = unique[i];
    const std::uint32_t from = from_[i];
    std::size_t at = i;
    for (; at > 0 && unique[at - 1] > key; --at) {
      unique[at] = unique[at - 1];
      from_[at] = from_[at - 1];
    }
    unique[at] = key;
    from_[at] = from;
  }
  for (std::uint32_t at = 0; at < count; ++at) ranks_[from_[at]] = at;
}

}  // namespace psring::worker
