#include <algorithm>
#include <cmath>
#include <numeric>

#include <psring/bench/exchange/exchange.h>
#include <psring/bench/rows/drawn_batches.h>
#include <psring/common/base/rng.h>
#include <psring/optim/rows/row_hash.h>

namespace psring::bench {
namespace {

constexpr float kEpsilon = 1e-8F;

RowBatch batch_of(std::vector<std::uint64_t> hashed) {
  std::ranges::sort(hashed);
  const auto [first, last] = std::ranges::unique(hashed);
  hashed.erase(first, last);
  RowBatch batch{std::move(hashed), {}};
  for (const std::uint64_t h : batch.keys) batch.rows.push_back(static_cast<std::uint32_t>(optim::unmix64(h) - 1));
  return batch;
}

}  // namespace

DrawnBatches::DrawnBatches(const RowCase& which) : which_(which) {
  for (std::size_t i = 0; i < kDrawn; ++i) drawn_.push_back(make(loading() + i));
}

const RowBatch& DrawnBatches::operator[](std::size_t number) {
  if (number >= loading()) return drawn_[(number - loading()) % kDrawn];
  return loaded_ = make(number);
}

double DrawnBatches::mean_keys() const {
  double keys = 0;
  for (const RowBatch& batch : drawn_) keys += static_cast<double>(batch.keys.size());
  return keys / kDrawn;
}

RowBatch DrawnBatches::make(std::size_t number) const {
  std::vector<std::uint64_t> keys;
  if (number < loading()) {
    keys.resize(std::min(which_.lookups, which_.rows - number * which_.lookups));
    std::iota(keys.begin(), keys.end(), number * which_.lookups + 1);
  } else {
    // The inverse of the distribution, at uniform numbers; an exponent of 1 is a limit.
    const double exponent = which_.zipf == 1 ? 1 + 1e-9 : which_.zipf;
    const double power = std::pow(static_cast<double>(which_.rows + 1), 1 - exponent) - 1;
    const CounterRng rng({.purpose = Purpose::synthetic, .step = static_cast<std::uint32_t>(number)});
    for (std::size_t i = 0; i < which_.lookups; ++i) {
      const double u = (static_cast<double>(rng.bits(i)) + 0.5) * 0x1p-32;
      const double x = std::pow(1 + u * power, 1 / (1 - exponent));
      keys.push_back(std::clamp<std::uint64_t>(static_cast<std::uint64_t>(x), 1, which_.rows));
    }
  }
  for (std::uint64_t& key : keys) key = optim::mix64(key);
  return batch_of(std::move(keys));
}

void write_gradients(std::span<const std::uint64_t> keys, std::size_t width, std::span<float> out) {
  for (std::size_t i = 0; i < keys.size(); ++i) {
    const auto base = static_cast<std::int32_t>(keys[i] & 1023) - 512;
    for (std::size_t column = 0; column < width; ++column)
      out[i * width + column] = static_cast<float>(base + static_cast<std::int32_t>(column)) * 0x1p-10F;
  }
}

void update_row(std::size_t width, float* values, float& state, const float* gradient) {
  float lanes[8] = {};
  std::size_t at = 0;
  for (; at + 8 <= width; at += 8)
    for (std::size_t lane = 0; lane < 8; ++lane) lanes[lane] += gradient[at + lane] * gradient[at + lane];
  for (std::size_t i = at; i < width; ++i) lanes[i - at] += gradient[i] * gradient[i];
  float sum = 0;
  for (const float lane : lanes) sum += lane;
  state += sum / static_cast<float>(width);
  const float step = kLearningRate / (std::sqrt(state) + kEpsilon);
#pragma GCC ivdep
  for (std::size_t i = 0; i < width; ++i) values[i] = std::fma(-step, gradient[i], values[i]);
}

}  // namespace psring::bench
