#include <algorithm>
#include <cmath>
#include <cstring>
#include <type_traits>

#include <psring/common/base/text/error.h>
#include <psring/common/base/text/number.h>
#include <psring/optim/loss_scaler.h>

namespace psring::optim {
namespace {

constexpr float kFirst = 65536;
constexpr float kLeast = 0x1p-24F;
constexpr float kMost = 0x1p24F;
constexpr std::uint64_t kGrowthInterval = 2000;

/// Returns whether `value` is a power of two in the allowed range.
bool is_scale(double value) {
  int exponent = 0;
  return value >= kLeast && value <= kMost && std::frexp(value, &exponent) == 0.5;
}

}  // namespace

LossScaler LossScaler::fixed(float scale) {
  LossScaler scaler;
  scaler.scale_ = scale;
  scaler.active_ = true;
  return scaler;
}

LossScaler LossScaler::dynamic() {
  LossScaler scaler = fixed(kFirst);
  scaler.moves_ = true;
  return scaler;
}

LossScaler LossScaler::parse(const std::string& text, bool is_f16) {
  if (text == "off" || (text == "auto" && !is_f16)) return {};
  if (text == "dynamic" || text == "auto") return dynamic();
  const auto scale = read_number<float>(text);
  if (!scale || !is_scale(*scale))
    fail(ErrorKind::usage, "--loss-scale: expected auto, dynamic, off, or a power of two from 2^-24 to 2^24, got '{}'",
         text);
  return fixed(*scale);
}

void LossScaler::finished(bool finite) {
  if (!finite) ++skipped_;
  if (!moves_) return;
  if (!finite) {
    scale_ = std::max(scale_ / 2, kLeast);
    good_ = 0;
  } else if (++good_ == kGrowthInterval) {
    scale_ = std::min(scale_ * 2, kMost);
    good_ = 0;
  }
}

std::map<std::string, double> LossScaler::state() const {
  std::map<std::string, double> state{{"skipped_steps", static_cast<double>(skipped_)}};
  if (moves_) state.insert({{"loss_scale", scale_}, {"good_steps", static_cast<double>(good_)}});
  return state;
}

void LossScaler::restore(const std::map<std::string, double>& state) {
  const auto take = [&](const char* name, auto& into, const auto& allowed) {
    const auto found = state.find(name);
    if (found == state.end()) return;
    if (!allowed(found->second)) fail(ErrorKind::data, "{} is {:g}", name, found->second);
    into = static_cast<std::remove_reference_t<decltype(into)>>(found->second);
  };
  const auto count = [](double value) { return value >= 0 && value <= 0x1p53 && value == std::floor(value); };
  take("skipped_steps", skipped_, count);
  if (!moves_) return;
  take("loss_scale", scale_, is_scale);
  take("good_steps", good_, [&](double value) { return count(value) && value < kGrowthInterval; });
}

std::array<std::byte, LossScaler::kBytes> LossScaler::store() const {
  const double values[] = {scale_, static_cast<double>(good_), static_cast<double>(skipped_)};
  std::array<std::byte, kBytes> bytes;
  static_assert(sizeof(values) == kBytes);
  std::memcpy(bytes.data(), values, kBytes);
  return bytes;
}

void LossScaler::load(std::span<const std::byte, kBytes> bytes) {
  double values[3];
  std::memcpy(values, bytes.data(), kBytes);
  restore({{"loss_scale", values[0]}, {"good_steps", values[1]}, {"skipped_steps", values[2]}});
}

}  // namespace psring::optim
