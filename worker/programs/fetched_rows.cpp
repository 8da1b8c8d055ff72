#include <algorithm>

#include <psring/common/base/text/error.h>
#include <psring/worker/programs/fetched_rows.h>

namespace psring::worker {
namespace {

constexpr std::size_t kLeast = 64;  ///< bytes of a buffer: a batch may have no key

}  // namespace

void Bags::check(std::size_t rows) const {
  if (!weights.empty() && weights.size() != places.size())
    fail(ErrorKind::usage, "{} weights of {} lookups", weights.size(), places.size());
  for (const std::int64_t place : places)
    if (place < 0 || static_cast<std::size_t>(place) >= rows)
      fail(ErrorKind::usage, "a lookup of row {} of {}", place, rows);
  for (std::size_t bag = 0; bag < begins.size(); ++bag) {
    const std::int64_t least = bag == 0 ? 0 : begins[bag - 1];
    const std::int64_t most = bag == 0 ? 0 : static_cast<std::int64_t>(places.size());
    if (begins[bag] < least || begins[bag] > most)
      fail(ErrorKind::usage, "bag {} begins at lookup {}; offsets ascend from 0 to the number of lookups, {}", bag,
           begins[bag], places.size());
  }
}

FetchedRows::FetchedRows(std::size_t table, const TableLayout& layout, std::uint64_t version,
                         std::span<const std::uint64_t> keys, std::span<const std::uint32_t> places,
                         MemoryLedger& memory, Arena& arena)
    : table_(table),
      version_(version),
      width_(layout.width),
      type_(layout.type),
      count_(keys.size()),
      memory_(memory),
      arena_(arena),
      keys_(std::max(keys.size_bytes(), kLeast), Category::communication, memory, &arena),
      rows_(std::max(count_ * layout.row_bytes(), kLeast), Category::parameters, memory, &arena),
      places_(places.begin(), places.end()),
      touched_(count_) {
  std::ranges::copy(keys, keys_.as<std::uint64_t>().begin());
  if (type_ != DType::f32)
    wide_ = Buffer(std::max(count_ * width_ * sizeof(float), kLeast), Category::parameters, memory, &arena);
}

/// Memory order: see arrived().
void FetchedRows::set_arrived() {
  if (type_ != DType::f32) widen(travelling(), wide_.as<float>().first(count_ * width_));
  arrived_.store(true, std::memory_order_release);
}

std::span<float> FetchedRows::gradients() {
  if (gradients_.size_bytes() == 0)
    gradients_ = Buffer(std::max(count_ * width_ * sizeof(float), kLeast), Category::gradients, memory_, &arena_);
  return gradients_.as<float>().first(count_ * width_);
}

void FetchedRows::pool(const Bags& bags, std::span<float> out) const {
  bags.check(count_);
  const std::span<const float> from = values();
  for (std::size_t bag = 0; bag < bags.size(); ++bag) {
    float* const sum = out.data() + bag * width_;
    std::fill_n(sum, width_, 0.0F);
    const Range lookups = bags.lookups(bag);
    for (std::size_t at = lookups.begin; at < lookups.end; ++at) {
      const float* const row = from.data() + static_cast<std::size_t>(bags.places[at]) * width_;
      const float weight = bags.weights.empty() ? 1.0F : bags.weights[at];
#pragma GCC ivdep
      for (std::size_t i = 0; i < width_; ++i) sum[i] += weight * row[i];
    }
    if (!bags.mean || lookups.size() < 2) continue;
    const float factor = 1.0F / static_cast<float>(lookups.size());
    for (std::size_t i = 0; i < width_; ++i) sum[i] *= factor;
  }
}

}  // namespace psring::worker
