#include <cmath>
#include <numbers>

#include <psring/common/base/rng.h>

namespace psring {
namespace {

void round(std::array<std::uint32_t, 4>& c, std::uint32_t k0, std::uint32_t k1) {
  const std::uint64_t p0 = std::uint64_t{0xD2511F53} * c[0];
  const std::uint64_t p1 = std::uint64_t{0xCD9E8D57} * c[2];
  c = {static_cast<std::uint32_t>(p1 >> 32) ^ c[1] ^ k0, static_cast<std::uint32_t>(p1),
       static_cast<std::uint32_t>(p0 >> 32) ^ c[3] ^ k1, static_cast<std::uint32_t>(p0)};
}

}  // namespace

CounterRng::CounterRng(const Key& key)
    : key_{static_cast<std::uint32_t>(key.seed),
           static_cast<std::uint32_t>(key.seed >> 32) ^ (static_cast<std::uint32_t>(key.purpose) << 24)},
      counter_{0, key.tensor, key.step, std::uint32_t{key.micro} << 16 | key.rank} {}

std::array<std::uint32_t, 4> CounterRng::block(std::uint32_t index) const {
  std::array<std::uint32_t, 4> c = counter_;
  c[0] = index;
  std::uint32_t k0 = key_[0];
  std::uint32_t k1 = key_[1];
  for (int i = 0; i < 10; ++i) {
    round(c, k0, k1);
    k0 += 0x9E3779B9;
    k1 += 0xBB67AE85;
  }
  return c;
}

std::uint32_t CounterRng::bits(std::uint64_t index) const {
  return block(static_cast<std::uint32_t>(index / 4))[index % 4];
}

float CounterRng::uniform(std::uint64_t index) const { return static_cast<float>(bits(index) >> 8) * 0x1p-24F; }

float CounterRng::normal(std::uint64_t index) const {
  const auto words = block(static_cast<std::uint32_t>(index / 2));
  const std::size_t pair = index % 2 * 2;
  const double u = (static_cast<double>(words[pair]) + 1.0) * 0x1p-32;  // in (0, 1]: its logarithm is finite
  const double v = static_cast<double>(words[pair + 1]) * 0x1p-32;
  return static_cast<float>(std::sqrt(-2.0 * std::log(u)) * std::cos(2.0 * std::numbers::pi * v));
}

}  // namespace psring
