#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <functional>
#include <numeric>
#include <vector>

#include <psring/common/base/text/error.h>
#include <psring/common/base/text/spec.h>
#include <psring/optim/codec/codes.h>
#include <psring/optim/codec/compression.h>
#include <psring/optim/codec/power_sgd.h>
#include <psring/optim/norm.h>

namespace psring::optim {
namespace {

using Bytes = std::span<std::byte>;
using ConstBytes = std::span<const std::byte>;

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

/// A codec for values in the host's memory.
class HostCodec : public Codec {
 public:
  void encode(ConstElements values, const GradientId& id, Elements out) const final {
    write(values.as<float>(), id, out.bytes());
  }
  void check_form(ConstElements in, std::size_t elements) const override {
    if (in.size() != bytes(elements))
      fail(ErrorKind::protocol, "{} elements in {} bytes, {} expected", elements, in.size(), bytes(elements));
  }
  void decode(ConstElements in, const GradientId& id, Elements out) const final {
    check_form(in, out.size());
    read(in.bytes(), id, out.as<float>());
  }

 private:
  virtual void write(std::span<const float> values, const GradientId& id, Bytes out) const = 0;
  virtual void read(ConstBytes in, const GradientId& id, std::span<float> out) const = 0;
};

class BrainFloat final : public HostCodec {
 public:
  net::Encoding encoding() const override { return net::Encoding::bf16; }
  std::size_t bytes(std::size_t elements) const override { return 2 * elements; }

 private:
  void write(std::span<const float> values, const GradientId& /*id*/, Bytes out) const override {
    narrow(values, Elements(out.data(), values.size(), DType::bf16));
  }
  void read(ConstBytes in, const GradientId& /*id*/, std::span<float> out) const override {
    widen(ConstElements(in.data(), out.size(), DType::bf16), out);
  }
};

/// Calls body(b, range) for each block of kBlock elements.
template <std::size_t kBlock>
void for_each_block(std::size_t elements, const auto& body) {
  for (std::size_t b = 0; b * kBlock < elements; ++b) body(b, Range{b * kBlock, std::min(elements, (b + 1) * kBlock)});
}

/// Format: the scales of all blocks, then the elements.
class Int8 final : public HostCodec {
 public:
  net::Encoding encoding() const override { return net::Encoding::int8; }
  std::size_t bytes(std::size_t elements) const override { return blocks_of(elements, kInt8Block) * 4 + elements; }

 private:
  void write(std::span<const float> values, const GradientId& /*id*/, Bytes out) const override {
    std::byte* const codes = out.data() + blocks_of(values.size(), kInt8Block) * 4;
    for_each_block<kInt8Block>(values.size(), [&](std::size_t b, Range block) {
      float most = 0;
      bool finite = true;
      for (std::size_t i = block.begin; i < block.end; ++i) {
        most = std::max(most, std::abs(values[i]));
        finite = finite && values[i] - values[i] == 0;
      }
      const Int8Scale scale = int8_scale(most, finite);
      store(out, b, scale.scale);
      for (std::size_t i = block.begin; i < block.end; ++i)
        codes[i] = static_cast<std::byte>(int8_code(scale, values[i]));
    });
  }
  void read(ConstBytes in, const GradientId& /*id*/, std::span<float> out) const override {
    const std::byte* const codes = in.data() + blocks_of(out.size(), kInt8Block) * 4;
    for_each_block<kInt8Block>(out.size(), [&](std::size_t b, Range block) {
      const auto scale = load<float>(in, b);
      for (std::size_t i = block.begin; i < block.end; ++i)
        out[i] = scale * static_cast<float>(static_cast<std::int8_t>(codes[i]));
    });
  }
};

/// Format: the scales of all blocks, then one bit per element, lowest bit first; 1 means negative.
class Sign final : public HostCodec {
 public:
  net::Encoding encoding() const override { return net::Encoding::sign; }
  std::size_t bytes(std::size_t elements) const override {
    return blocks_of(elements, kSignBlock) * 4 + blocks_of(elements, 8);
  }

 private:
  void write(std::span<const float> values, const GradientId& /*id*/, Bytes out) const override {
    std::byte* const bits = out.data() + blocks_of(values.size(), kSignBlock) * 4;
    for_each_block<kSignBlock>(values.size(), [&](std::size_t b, Range block) {
      float sums[kSignLanes] = {};
      for (std::size_t i = block.begin; i < block.end; ++i) sums[i % kSignLanes] += std::abs(values[i]);
      const float sum = std::accumulate(std::begin(sums), std::end(sums), 0.0F);
      store(out, b, mean_magnitude(values.data() + block.begin, block.size(), sum));
      for (std::size_t i = block.begin; i < block.end; i += 8) {
        std::uint32_t byte = 0;
        for (std::size_t k = 0; k < std::min<std::size_t>(8, block.end - i); ++k)
          byte |= std::bit_cast<std::uint32_t>(values[i + k]) >> 31 << k;
        bits[i / 8] = static_cast<std::byte>(byte);
      }
    });
  }
  void read(ConstBytes in, const GradientId& /*id*/, std::span<float> out) const override {
    const std::byte* const bits = in.data() + blocks_of(out.size(), kSignBlock) * 4;
    for_each_block<kSignBlock>(out.size(), [&](std::size_t b, Range block) {
      const auto scale = load<std::uint32_t>(in, b);
      for (std::size_t i = block.begin; i < block.end; i += 8) {
        const auto byte = std::to_integer<std::uint32_t>(bits[i / 8]);
        for (std::size_t k = 0; k < std::min<std::size_t>(8, block.end - i); ++k)
          out[i + k] = std::bit_cast<float>(scale ^ (byte >> k & 1) << 31);
      }
    });
  }
};

/// Returns the number of elements that are kept.
std::size_t kept(std::size_t elements, double ratio) {
  const auto share = static_cast<std::size_t>(std::ceil(static_cast<double>(elements) * ratio));
  return std::clamp<std::size_t>(share, elements > 0 ? 1 : 0, elements);
}

/// Format: pairs (place: u32, value: f32), places ascending.
class TopK final : public HostCodec {
 public:
  explicit TopK(double ratio) : ratio_(ratio) {}
  net::Encoding encoding() const override { return net::Encoding::top_k; }
  std::size_t bytes(std::size_t elements) const override { return 8 * kept(elements, ratio_); }
  void check_form(ConstElements in, std::size_t elements) const override {
    HostCodec::check_form(in, elements);
    std::uint64_t least = 0;
    for (std::size_t i = 0; i < in.size() / 8; ++i) {
      const auto place = load<std::uint32_t>(in.bytes(), 2 * i);
      if (place < least || place >= elements)
        fail(ErrorKind::protocol, "pair {} names element {}: expected ascending elements below {}", i, place, elements);
      least = std::uint64_t{place} + 1;
    }
  }

 private:
  void write(std::span<const float> values, const GradientId& /*id*/, Bytes out) const override {
    const std::size_t k = out.size() / 8;
    // Compared as whole numbers, magnitudes keep their order; infinity and NaN are the largest, so they are always
    // kept.
    std::vector<std::uint32_t> sizes(values.size());
    for (std::size_t i = 0; i < sizes.size(); ++i) sizes[i] = std::bit_cast<std::uint32_t>(values[i]) & 0x7fffffff;
    std::vector<std::uint32_t> sorted = sizes;
    if (k < sorted.size())
      std::nth_element(sorted.begin(), sorted.begin() + static_cast<std::ptrdiff_t>(k), sorted.end(), std::greater<>());
    const std::uint32_t next = k < sorted.size() ? sorted[k] : 0;  // largest magnitude that may be dropped
    std::size_t ties = k;  // values of this magnitude that are kept; the first in order
    for (const std::uint32_t size : sizes) ties -= size > next ? 1 : 0;
    std::size_t at = 0;
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      if (sizes[i] < next || (sizes[i] == next && ties == 0)) continue;
      if (sizes[i] == next) --ties;
      store(out, 2 * at, static_cast<std::uint32_t>(i));
      store(out, 2 * at++ + 1, values[i]);
    }
  }
  void read(ConstBytes in, const GradientId& /*id*/, std::span<float> out) const override {
    std::fill(out.begin(), out.end(), 0.0F);
    for (std::size_t i = 0; i < in.size() / 8; ++i) out[load<std::uint32_t>(in, 2 * i)] = load<float>(in, 2 * i + 1);
  }

  const double ratio_;
};

/// Format: the values without positions. A NaN as the first value means that an element of the range, drawn or not, was
/// NaN or infinite: the whole range is decoded as NaN.
class RandomK final : public HostCodec {
 public:
  RandomK(double ratio, bool unbiased) : ratio_(ratio), unbiased_(unbiased) {}
  net::Encoding encoding() const override { return net::Encoding::random_k; }
  std::size_t bytes(std::size_t elements) const override { return 4 * kept(elements, ratio_); }

 private:
  void write(std::span<const float> values, const GradientId& id, Bytes out) const override {
    const float factor = random_factor(values.size(), out.size() / 4, unbiased_);
    for_each_place(values.size(), id, [&](std::size_t i, std::size_t place) { store(out, i, factor * values[place]); });
    if (!all_finite(values)) store(out, 0, kNaN);
  }
  void read(ConstBytes in, const GradientId& id, std::span<float> out) const override {
    if (!in.empty() && std::isnan(load<float>(in, 0))) return std::fill(out.begin(), out.end(), kNaN);
    std::fill(out.begin(), out.end(), 0.0F);
    for_each_place(out.size(), id, [&](std::size_t i, std::size_t place) { out[place] = load<float>(in, i); });
  }
  void for_each_place(std::size_t elements, const GradientId& id, const auto& body) const {
    const CounterRng rng = random_places(id);
    const std::size_t k = kept(elements, ratio_);
    for (std::size_t i = 0; i < k; ++i) body(i, random_place(rng, id.begin, i, elements, k));
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

bool compresses(const std::string& text) {
  return power_sgd_rank(text).has_value() || make_codec(text, true) != nullptr;
}

std::unique_ptr<Codec> make_codec(const std::string& text, bool error_feedback) {
  const Spec spec = Spec::parse("--compress", text);
  if (spec.name() == "top-k") return std::make_unique<TopK>(ratio_of(spec));
  if (spec.name() == "random-k") return std::make_unique<RandomK>(ratio_of(spec), !error_feedback);
  if (text == "none" || power_sgd_rank(text)) return nullptr;
  if (text == "bf16") return std::make_unique<BrainFloat>();
  if (text == "int8") return std::make_unique<Int8>();
  if (text == "sign") return std::make_unique<Sign>();
  fail(ErrorKind::usage,
       "--compress: expected none, bf16, int8, sign, top-k:ratio=R, random-k:ratio=R or power-sgd:rank=R, got '{}'",
       text);
}

}  // namespace psring::optim
