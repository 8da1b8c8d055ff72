#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>

namespace psring::optim {

/// By how much the loss is multiplied before backward, so that small gradients do not vanish in f16, and their owners'
/// gradients divided again (Micikevicius et al., ICLR 2018, section 3.2). Dynamic, as PyTorch's GradScaler: from 65536,
/// halved in a step whose gradients are not all finite, which is skipped; doubled after 2000 steps without one. Whoever
/// is told the same of each step has the same scale: a power of two from 2^-24 to 2^24, so that dividing is exact.
class LossScaler {
 public:
  /// Does not scale.
  LossScaler() = default;
  static LossScaler fixed(float scale);
  static LossScaler dynamic();
  /// --loss-scale: `auto` (dynamic where the precision is f16, else off), `dynamic`, `off`, or a power of two in the
  /// range, fixed. Throws usage.
  static LossScaler parse(const std::string& text, bool is_f16);

  /// Are there steps to be skipped?
  bool active() const { return active_; }
  float scale() const { return scale_; }
  /// Of a step: were all gradients finite?
  void finished(bool finite);
  std::uint64_t skipped() const { return skipped_; }

  /// What a checkpoint keeps, by name. Restoring leaves a scale that does not move as it is; names that are missing,
  /// too.
  std::map<std::string, double> state() const;
  void restore(const std::map<std::string, double>& state);

  /// The same on the wire: the scale, the good steps and the skipped ones, f64 each, little endian.
  static constexpr std::size_t kBytes = 24;
  std::array<std::byte, kBytes> store() const;
  /// As restore. Throws data.
  void load(std::span<const std::byte, kBytes> bytes);

 private:
  float scale_ = 1;
  bool active_ = false;
  bool moves_ = false;
  std::uint64_t good_ = 0;  ///< steps since the scale last changed
  std::uint64_t skipped_ = 0;
};

}  // namespace psring::optim
