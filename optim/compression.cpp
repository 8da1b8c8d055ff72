#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <numeric>
#include <vector>

#include <psring/common/base/elements.h>
#include <psring/common/base/error.h>
#include <psring/common/base/rng.h>
#include <psring/common/base/spec.h>
#include <psring/optim/compression.h>

namespace psring::optim {
namespace {

using Bytes = std::span<std::byte>;
using ConstBytes = std::span<const std::byte>;

constexpr std::size_t blocks(std::size_t elements, std::size_t block) { return (elements + block - 1) / block; }

void check_size(const Codec& codec, std::size_t bytes, std::size_t elements) {
  if (bytes != codec.bytes(elements))
    fail(ErrorKind::protocol, "{} elements in {} bytes, {} expected", elements, bytes, codec.bytes(elements));
}

template <class T>
T load(ConstBytes bytes, std::size_t index) {
  T value;
  std::memcpy(&value, bytes.data() + index * sizeof(T), sizeof(T));
  return value;
}
template <class T>
void store(Bytes bytes, std::size_t index, T value) {
  std::memcpy(bytes.data() + index * sizeof(T), &value, sizeof(T));
}

class BrainFloat final : public Codec {
 public:
  net::Encoding encoding() const override { return net::Encoding::bf16; }
  std::size_t bytes(std::size_t elements) const override { return 2 * elements; }
  void encode(std::span<const float> values, const GradientId& /*id*/, Bytes out) const override {
    narrow(values, Elements(out.data(), values.size(), DType::bf16));
  }
  void decode(ConstBytes bytes, const GradientId& /*id*/, std::span<float> out) const override {
    check_size(*this, bytes.size(), out.size());
    widen(ConstElements(bytes.data(), out.size(), DType::bf16), out);
  }
};

/// Calls body(b, range) for each block of so many elements.
template <std::size_t kBlock>
void for_each_block(std::size_t elements, const auto& body) {
  for (std::size_t b = 0; b * kBlock < elements; ++b) body(b, Range{b * kBlock, std::min(elements, (b + 1) * kBlock)});
}

/// Scales of all blocks first, then the elements.
class Int8 final : public Codec {
 public:
  net::Encoding encoding() const override { return net::Encoding::int8; }
  std::size_t bytes(std::size_t elements) const override { return blocks(elements, kBlock) * 4 + elements; }
  void encode(std::span<const float> values, const GradientId& /*id*/, Bytes out) const override {
    std::byte* const codes = out.data() + blocks(values.size(), kBlock) * 4;
    for_each_block<kBlock>(values.size(), [&](std::size_t b, Range block) {
      float most = 0;
      bool finite = true;
      for (std::size_t i = block.begin; i < block.end; ++i) {
        most = std::max(most, std::abs(values[i]));
        finite = finite && values[i] - values[i] == 0;
      }
      // What is no number makes its whole block none: it has to be seen. What is too small for a scale is zero.
      store(out, b, finite ? most / 127 : std::numeric_limits<float>::quiet_NaN());
      const float factor = finite && std::isfinite(127 / most) ? 127 / most : 0;
      for (std::size_t i = block.begin; i < block.end; ++i) {
        const float code = finite ? std::nearbyint(std::clamp(values[i] * factor, -127.0F, 127.0F)) : 1;
        codes[i] = static_cast<std::byte>(static_cast<std::int8_t>(code));
      }
    });
  }
  void decode(ConstBytes bytes, const GradientId& /*id*/, std::span<float> out) const override {
    check_size(*this, bytes.size(), out.size());
    const std::byte* const codes = bytes.data() + blocks(out.size(), kBlock) * 4;
    for_each_block<kBlock>(out.size(), [&](std::size_t b, Range block) {
      const auto scale = load<float>(bytes, b);
      for (std::size_t i = block.begin; i < block.end; ++i)
        out[i] = scale * static_cast<float>(static_cast<std::int8_t>(codes[i]));
    });
  }

 private:
  static constexpr std::size_t kBlock = 256;
};

/// Scales of all blocks first, then a bit an element, the lowest first: 1 is negative.
class Sign final : public Codec {
 public:
  net::Encoding encoding() const override { return net::Encoding::sign; }
  std::size_t bytes(std::size_t elements) const override { return blocks(elements, kBlock) * 4 + blocks(elements, 8); }
  void encode(std::span<const float> values, const GradientId& /*id*/, Bytes out) const override {
    std::byte* const bits = out.data() + blocks(values.size(), kBlock) * 4;
    for_each_block<kBlock>(values.size(), [&](std::size_t b, Range block) {
      constexpr std::size_t kLanes = 16;
      float sums[kLanes] = {};
      for (std::size_t i = block.begin; i < block.end; ++i) sums[i % kLanes] += std::abs(values[i]);
      const float sum = std::accumulate(std::begin(sums), std::end(sums), 0.0F);
      const auto size = static_cast<float>(block.size());
      float mean = sum / size;
      if (!std::isfinite(mean))  // the sum may be too large for a float, and never is for a double
        mean = static_cast<float>(std::accumulate(
            values.begin() + static_cast<std::ptrdiff_t>(block.begin),
            values.begin() + static_cast<std::ptrdiff_t>(block.end), 0.0,
            [&](double all, float value) { return all + std::abs(value) / static_cast<double>(size); }));
      store(out, b, mean);
      for (std::size_t i = block.begin; i < block.end; i += 8) {
        std::uint32_t byte = 0;
        for (std::size_t k = 0; k < std::min<std::size_t>(8, block.end - i); ++k)
          byte |= std::bit_cast<std::uint32_t>(values[i + k]) >> 31 << k;
        bits[i / 8] = static_cast<std::byte>(byte);
      }
    });
  }
  void decode(ConstBytes bytes, const GradientId& /*id*/, std::span<float> out) const override {
    check_size(*this, bytes.size(), out.size());
    const std::byte* const bits = bytes.data() + blocks(out.size(), kBlock) * 4;
    for_each_block<kBlock>(out.size(), [&](std::size_t b, Range block) {
      const auto scale = load<std::uint32_t>(bytes, b);
      for (std::size_t i = block.begin; i < block.end; i += 8) {
        const auto byte = std::to_integer<std::uint32_t>(bits[i / 8]);
        for (std::size_t k = 0; k < std::min<std::size_t>(8, block.end - i); ++k)
          out[i + k] = std::bit_cast<float>(scale ^ (byte >> k & 1) << 31);
      }
    });
  }

 private:
  static constexpr std::size_t kBlock = 1024;
};

/// Of n elements, how many are kept.
std::size_t kept(std::size_t elements, double ratio) {
  const auto share = static_cast<std::size_t>(std::ceil(static_cast<double>(elements) * ratio));
  return std::clamp<std::size_t>(share, elements > 0 ? 1 : 0, elements);
}

/// (place: u32, value: f32), places ascending.
class TopK final : public Codec {
 public:
  explicit TopK(double ratio) : ratio_(ratio) {}
  net::Encoding encoding() const override { return net::Encoding::top_k; }
  std::size_t bytes(std::size_t elements) const override { return 8 * kept(elements, ratio_); }
  void encode(std::span<const float> values, const GradientId& /*id*/, Bytes out) const override {
    const std::size_t k = out.size() / 8;
    // As whole numbers magnitudes are in their order, and what is no number is the largest: it has to be seen.
    std::vector<std::uint32_t> sizes(values.size());
    for (std::size_t i = 0; i < sizes.size(); ++i) sizes[i] = std::bit_cast<std::uint32_t>(values[i]) & 0x7fffffff;
    std::vector<std::uint32_t> sorted = sizes;
    if (k < sorted.size())
      std::nth_element(sorted.begin(), sorted.begin() + static_cast<std::ptrdiff_t>(k), sorted.end(), std::greater<>());
    const std::uint32_t next = k < sorted.size() ? sorted[k] : 0;  // the largest that may have to stay behind
    std::size_t ties = k;                                          // of its size, how many go: the first ones
    for (const std::uint32_t size : sizes) ties -= size > next ? 1 : 0;
    std::size_t at = 0;
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      if (sizes[i] < next || (sizes[i] == next && ties == 0)) continue;
      if (sizes[i] == next) --ties;
      store(out, 2 * at, static_cast<std::uint32_t>(i));
      store(out, 2 * at++ + 1, values[i]);
    }
  }
  void decode(ConstBytes bytes, const GradientId& /*id*/, std::span<float> out) const override {
    check_size(*this, bytes.size(), out.size());
    std::fill(out.begin(), out.end(), 0.0F);
    std::uint64_t least = 0;
    for (std::size_t i = 0; i < bytes.size() / 8; ++i) {
      const auto place = load<std::uint32_t>(bytes, 2 * i);
      if (place < least || place >= out.size())
        fail(ErrorKind::protocol, "element {} of {} in its place {}", place, out.size(), i);
      out[place] = load<float>(bytes, 2 * i + 1);
      least = std::uint64_t{place} + 1;
    }
  }

 private:
  const double ratio_;
};

/// Values alone.
class RandomK final : public Codec {
 public:
  RandomK(double ratio, bool unbiased) : ratio_(ratio), unbiased_(unbiased) {}
  net::Encoding encoding() const override { return net::Encoding::random_k; }
  std::size_t bytes(std::size_t elements) const override { return 4 * kept(elements, ratio_); }
  void encode(std::span<const float> values, const GradientId& id, Bytes out) const override {
    const float factor = unbiased_ ? static_cast<float>(values.size()) / static_cast<float>(out.size() / 4) : 1;
    for_each_place(values.size(), id, [&](std::size_t i, std::size_t place) { store(out, i, factor * values[place]); });
  }
  void decode(ConstBytes bytes, const GradientId& id, std::span<float> out) const override {
    check_size(*this, bytes.size(), out.size());
    std::fill(out.begin(), out.end(), 0.0F);
    for_each_place(out.size(), id, [&](std::size_t i, std::size_t place) { out[place] = load<float>(bytes, i); });
  }

 private:
  /// Runs of nearly equal length, and a place in each.
  void for_each_place(std::size_t elements, const GradientId& id, const auto& body) const {
    const CounterRng rng({.seed = id.seed,
                          .purpose = Purpose::compress,
                          .tensor = static_cast<std::uint32_t>(id.unit),
                          .step = static_cast<std::uint32_t>(id.step),
                          .micro = static_cast<std::uint16_t>(id.micro),
                          .rank = static_cast<std::uint16_t>(id.worker)});
    const std::size_t k = kept(elements, ratio_);
    for (std::size_t i = 0; i < k; ++i) {
      const std::size_t begin = i * elements / k;
      const std::size_t run = (i + 1) * elements / k - begin;
      body(i, begin + rng.bits(id.begin + i) % run);
    }
  }

  const double ratio_;
  const bool unbiased_;
};

double ratio_of(const Spec& spec) {
  spec.allow_only({"ratio"});
  const double ratio = spec.number("ratio", 0.01);
  if (!(ratio > 0 && ratio <= 1))
    fail(ErrorKind::usage, "--compress {}: expected a ratio above 0, up to 1", spec.text());
  return ratio;
}

}  // namespace

std::unique_ptr<Codec> make_codec(const std::string& text, bool error_feedback) {
  const Spec spec = Spec::parse("--compress", text);
  if (spec.name() == "top-k") return std::make_unique<TopK>(ratio_of(spec));
  if (spec.name() == "random-k") return std::make_unique<RandomK>(ratio_of(spec), !error_feedback);
  if (text == "none") return nullptr;
  if (text == "bf16") return std::make_unique<BrainFloat>();
  if (text == "int8") return std::make_unique<Int8>();
  if (text == "sign") return std::make_unique<Sign>();
  fail(ErrorKind::usage, "--compress: expected none, bf16, int8, sign, top-k:ratio=R or random-k:ratio=R, got '{}'",
       text);
}

}  // namespace psring::optim
