#include <algorithm>
#include <vector>

#include <psring/common/base/error.h>
#include <psring/worker/model/generate/part_exchange.h>

namespace psring::worker {

std::size_t PartExchange::memory_bytes(std::size_t rows, std::size_t columns, std::size_t widest) {
  return std::max(rows * columns, widest) * sizeof(float);
}

std::span<float> PartExchange::memory(std::size_t floats) const {
  return {reinterpret_cast<float*>(part_.memory(floats * sizeof(float)).data()), floats};
}

void PartExchange::gather(std::size_t rows, FloatRows own, std::size_t units, std::size_t unit, float* to) {
  const std::size_t columns = units * unit;
  const std::size_t most = part_.memory_bytes() / sizeof(float) / columns;
  check(most > 0, "the memory of an exchange has no room for {} columns", columns);
  for (std::size_t begin = 0; begin < rows; begin += most)
    gather_some(std::min(most, rows - begin), {own.data + begin * own.stride, own.stride}, units, unit,
                to + begin * columns);
}

void PartExchange::gather_some(std::size_t rows, FloatRows own, std::size_t units, std::size_t unit, float* to) {
  const std::size_t columns = units * unit;
  const std::span<float> all = memory(rows * columns);
  std::vector<std::size_t> sizes(part_.size());
  for (std::size_t r = 0; r < part_.size(); ++r) sizes[r] = rows * part_.of(units, r).size() * unit;
  const Range mine{part_.of(units).begin * unit, part_.of(units).end * unit};
  for (std::size_t row = 0; row < rows; ++row)
    std::copy_n(own.data + row * own.stride, mine.size(), all.data() + rows * mine.begin + row * mine.size());
  part_.gather(all, sizes);
  received_ += rows * (columns - mine.size()) * sizeof(float);
  for (std::size_t r = 0; r < part_.size(); ++r) {
    const Range theirs{part_.of(units, r).begin * unit, part_.of(units, r).end * unit};
    for (std::size_t row = 0; row < rows; ++row)
      std::copy_n(all.data() + rows * theirs.begin + row * theirs.size(), theirs.size(),
                  to + row * columns + theirs.begin);
  }
}

void PartExchange::share_rows(std::span<const std::uint32_t> owners, std::size_t columns, float* x) {
  const std::span<float> all = memory(owners.size() * columns);
  std::vector<std::size_t> sizes(part_.size());
  for (const std::uint32_t owner : owners) sizes[owner] += columns;
  std::vector<std::size_t> next(part_.size());  // the place of each rank's next row
  for (std::size_t r = 1; r < part_.size(); ++r) next[r] = next[r - 1] + sizes[r - 1];
  std::vector<std::size_t> places;
  for (const std::uint32_t owner : owners) {
    places.push_back(next[owner]);
    next[owner] += columns;
  }
  for (std::size_t i = 0; i < owners.size(); ++i)
    if (owners[i] == part_.rank()) std::copy_n(x + i * columns, columns, all.data() + places[i]);
  part_.gather(all, sizes);
  received_ += (all.size() - sizes[part_.rank()]) * sizeof(float);
  for (std::size_t i = 0; i < owners.size(); ++i)
    if (owners[i] != part_.rank()) std::copy_n(all.data() + places[i], columns, x + i * columns);
}

}  // namespace psring::worker
