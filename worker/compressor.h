#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include <psring/common/base/elements.h>
#include <psring/common/base/layout.h>
#include <psring/common/base/memory_ledger.h>
#include <psring/common/device/buffer.h>
#include <psring/optim/codec/compression.h>
#include <psring/optim/device_applier.h>
#include <psring/optim/loss_scaler.h>

namespace psring::worker {

/// A worker's gradients as they leave: what its codec lost of those before is added (error feedback: Seide et al.,
/// Interspeech 2014; Stich et al., arXiv:1809.07599), and what it loses now is kept. And all workers' as they come.
/// Gradients are f32, and lie, as all memory of this one, where the codec works.
class Compressor {
 public:
  /// `parts`: of which units' ranges are encoded, each by itself. REQUIRES: codec and layout outlive it.
  struct Part {
    std::size_t unit = 0;
    Range range;
  };
  /// `device`: the codec's; null: the host.
  Compressor(const optim::Codec& codec, bool feedback, const Layout& layout, const std::vector<Part>& parts,
             std::uint64_t seed, std::size_t rank, MemoryLedger& ledger, Device* device = nullptr);

  /// Gradients are scaled with the losses, and `skips`: steps may be skipped. `scaler` is asked when a step's first
  /// gradient is encoded: it has heard of every step before. Residuals are then multiplied when the scale changes, and
  /// a step that is skipped leaves them as they were, for which they are kept twice. The same holds for a step in which
  /// this worker's own gradients were not finite, though the owners' rule may have made a finite one of all.
  void follow(std::function<optim::LossScaler()> scaler, bool skips);
  /// Ends the step whose gradients were encoded last. REQUIRES: as for encoding the next one.
  void settle();

  const optim::Codec& codec() const { return codec_; }
  /// Of a worker's gradient of a range, as codecs want it.
  optim::GradientId id(std::size_t unit, std::size_t begin, std::uint64_t step, std::size_t micro,
                       std::size_t worker) const {
    return {seed_, step, micro, unit, begin, worker};
  }
  /// The bytes of a part, which stay until it is encoded again.
  ConstElements encode(std::size_t unit, Range range, std::uint64_t step, std::size_t micro, ConstElements gradient);
  /// Those of all parts of a unit. REQUIRES: they were named one after the other.
  ConstElements encode(std::size_t unit, std::uint64_t step, std::size_t micro, ConstElements gradient);
  /// Of all parts, in the order in which they were named.
  ConstElements encoded() { return encoded_.elements(DType::u8); }

  /// What a worker wrote of a part.
  struct Written {
    std::size_t worker = 0;
    ConstElements bytes;
  };
  /// The mean of what these workers wrote, added up in their order.
  void mean(std::size_t unit, Range range, std::uint64_t step, std::size_t micro, std::span<const Written> all,
            Elements out);

  /// What is booked: of all parts once, and room for one, as communication; what is kept of what was lost, as optimizer
  /// state.
  std::size_t encoded_bytes() const { return encoded_.size_bytes(); }
  std::size_t communication_bytes() const { return encoded_.size_bytes() + read_.size_bytes(); }
  std::size_t residual_bytes() const { return residual_[0].size_bytes() + residual_[1].size_bytes(); }

  /// Is what is lost kept? Then a unit's, if it is trained: between two steps it is this worker's state.
  bool feedback() const { return residual_[0].size_bytes() > 0; }
  Elements residual(std::size_t unit) { return residual(unit, settled_); }
  /// The residuals that were loaded belong to losses that were multiplied by this.
  void loaded(float loss_scale) { loss_scale_ = loss_scale; }

 private:
  struct Place {
    Range range;
    std::size_t offset = 0;
  };
  const Place& find(std::size_t unit, std::size_t begin) const;
  Elements residual(std::size_t unit, std::size_t which);
  bool skips() const { return residual_[1].size_bytes() > 0; }
  /// The residuals that the step under way leaves, if it is not skipped.
  std::size_t pending() const { return skips() ? 1 - settled_ : settled_; }
  bool pending_is_finite();
  /// What is read of a part again.
  Elements read(Range range) { return read_.elements(DType::f32).subspan(0, range.size()); }

  const optim::Codec& codec_;
  const Layout& layout_;
  const std::uint64_t seed_;
  const std::size_t rank_;
  MemoryLedger& ledger_;
  Device* const device_;
  /// Residuals of trained units; empty without feedback. The second is there where steps may be skipped: one has those
  /// of the last step that was settled, the other those of the step under way.
  Buffer residual_[2];
  std::size_t settled_ = 0;
  std::function<optim::LossScaler()> scaler_;
  std::unique_ptr<optim::DeviceApplier> applier_;  ///< sums up a device's residuals
  bool under_way_ = false;                         ///< gradients of a step are encoded that is not settled
  std::uint64_t step_ = 0;                         ///< that one
  std::uint64_t steps_skipped_ = 0;                ///< when it began
  float loss_scale_ = 0;                           ///< of the residuals; 0: they are zeros, or it is not known
  Buffer encoded_;
  Buffer read_;
  std::vector<std::size_t> residual_offsets_;  ///< by unit
  std::vector<std::vector<Place>> places_;     ///< by unit, ascending
};

}  // namespace psring::worker
