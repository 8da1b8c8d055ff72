#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>

namespace psring::optim {

/// Loss scaling: the loss is multiplied by the scale before backward, so that small gradients do not vanish in f16, and
/// the owners divide the gradients by the scale (Micikevicius et al., ICLR 2018, section 3.2). The dynamic scale works
/// like PyTorch's GradScaler: it starts at 65536, is halved after a step with non-finite gradients, which is skipped,
/// and is doubled after 2000 good steps in a row. Processes that see the same steps have the same scale. The scale is a
/// power of two from 2^-24 to 2^24, so that the division is exact.
class LossScaler {
 public:
  /// Makes a scaler that does not scale.
  LossScaler() = default;
  static LossScaler fixed(float scale);
  static LossScaler dynamic();
  /// Parses --loss-scale: `auto` (dynamic for f16, else off), `dynamic`, `off`, or a fixed scale (a power of two in the
  /// range). Throws usage.
  static LossScaler parse(const std::string& text, bool is_f16);

  /// Returns whether steps with non-finite gradients are skipped.
  bool active() const { return active_; }
  float scale() const { return scale_; }
  /// Records the end of a step. `finite`: all gradients were finite.
  void finished(bool finite);
  std::uint64_t skipped() const { return skipped_; }

  /// The state that a checkpoint saves, by name. `restore` ignores a fixed scale and missing names.
  std::map<std::string, double> state() const;
  void restore(const std::map<std::string, double>& state);

  /// The same state on the wire: the scale, the good steps and the skipped steps, as little-endian f64.
  static constexpr std::size_t kBytes = 24;
  std::array<std::byte, kBytes> store() const;
  /// Restores the state from the wire. Throws data.
  void load(std::span<const std::byte, kBytes> bytes);

 private:
  float scale_ = 1;
  bool active_ = false;
  bool moves_ = false;
  std::uint64_t good_ = 0;  ///< number of steps since the scale last changed
  std::uint64_t skipped_ = 0;
};

}  // namespace psring::optim
