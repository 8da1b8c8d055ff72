#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include <psring/common/base/text/error.h>
#include <psring/common/base/text/number.h>
#include <psring/worker/model/layers/dropout.h>

namespace psring::worker {
namespace {

constexpr std::size_t kBits = 32;  // kept flags in a saved float's memory

}  // namespace

Dropout::Dropout(double p, Columns columns)
    : below_(static_cast<std::uint32_t>(std::llround(p * 4294967296.0))),
      scale_(static_cast<float>(1 / (1 - p))),
      columns_(columns) {
  check(p >= 0 && p < 1, "dropout with probability {}", p);
}

std::size_t Dropout::saved_floats(Shape in) const { return (in.elements() + kBits - 1) / kBits; }

void Dropout::forward(const Forward& pass) const {
  if (!pass.training) {
    std::copy_n(pass.x.data, pass.x.size(), pass.y.data);
    return;
  }
  check(pass.samples > 0 && pass.x.rows % pass.samples == 0, "dropout: {} rows for {} samples", pass.x.rows,
        pass.samples);
  const std::size_t each = pass.x.size() / pass.samples;
  const std::size_t whole = columns_.whole == 0 ? pass.x.cols : columns_.whole;
  std::uint32_t kept = 0;
  for (std::size_t sample = 0; sample < pass.samples; ++sample) {
    const CounterRng rng = pass.randomness.of_sample(sample);
    std::array<std::uint32_t, 4> words{};
    for (std::size_t j = 0; j < each; ++j) {
      const std::size_t col = j % pass.x.cols;
      const std::size_t place = j / pass.x.cols * whole + columns_.part.begin + col;  // in the whole sample
      if (col == 0 || place % 4 == 0) words = rng.block(static_cast<std::uint32_t>(place / 4));
      const std::size_t i = sample * each + j;
      const bool keep = words[place % 4] >= below_;
      pass.y.data[i] = keep ? pass.x.data[i] * scale_ : 0.0F;
      kept |= std::uint32_t{keep} << (i % kBits);
      if (i % kBits == kBits - 1 || i + 1 == pass.x.size()) {
        std::memcpy(pass.saved.data() + i / kBits, &kept, sizeof(kept));
        kept = 0;
      }
    }
  }
}

void Dropout::backward(const Backward& pass) const {
  if (pass.dx.data == nullptr) return;
  std::uint32_t kept = 0;
  for (std::size_t i = 0; i < pass.dy.size(); ++i) {
    if (i % kBits == 0) std::memcpy(&kept, pass.saved.data() + i / kBits, sizeof(kept));
    pass.dx.data[i] = (kept >> (i % kBits) & 1U) != 0 ? pass.dy.data[i] * scale_ : 0.0F;
  }
}

double parse_dropout(const std::string& text, const std::string& model) {
  const auto p = read_number<double>(text);
  if (!p || !(*p >= 0 && *p < 1))
    fail(ErrorKind::usage, "--model {}: dropout 'd{}': expected a probability from 0 to below 1", model, text);
  return *p;
}

}  // namespace psring::worker
