#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include <psring/common/base/layout.h>
#include <psring/common/base/memory_ledger.h>
#include <psring/common/device/buffer.h>
#include <psring/optim/compression.h>

namespace psring::worker {

/// A worker's gradients as they leave: what its codec lost of those before is added (error feedback: Seide et al.,
/// Interspeech 2014; Stich et al., arXiv:1809.07599), and what it loses now is kept. Gradients are f32.
class Compressor {
 public:
  /// `parts`: of which units' ranges are encoded, each by itself. REQUIRES: codec and layout outlive it.
  struct Part {
    std::size_t unit = 0;
    Range range;
  };
  Compressor(const optim::Codec& codec, bool feedback, const Layout& layout, const std::vector<Part>& parts,
             std::uint64_t seed, std::size_t rank, MemoryLedger& ledger);

  const optim::Codec& codec() const { return codec_; }
  /// Of a worker's gradient of a range, as codecs want it.
  optim::GradientId id(std::size_t unit, std::size_t begin, std::uint64_t step, std::size_t micro,
                       std::size_t worker) const {
    return {seed_, step, micro, unit, begin, worker};
  }
  /// The bytes of a part, which stay until it is encoded again.
  std::span<const std::byte> encode(std::size_t unit, Range range, std::uint64_t step, std::size_t micro,
                                    std::span<const float> gradient);
  /// Of all parts once, and what is kept of what was lost: both are booked.
  std::size_t encoded_bytes() const { return encoded_.size_bytes(); }
  std::size_t residual_bytes() const { return residual_.size_bytes(); }

  /// Is what is lost kept? Then a unit's, if it is trained: between two steps it is this worker's state.
  bool feedback() const { return residual_.size_bytes() > 0; }
  std::span<float> residual(std::size_t unit);

 private:
  struct Place {
    std::size_t begin = 0;  ///< of the range
    std::size_t offset = 0;
  };
  std::size_t offset_of(std::size_t unit, std::size_t begin) const;

  const optim::Codec& codec_;
  const Layout& layout_;
  const std::uint64_t seed_;
  const std::size_t rank_;
  Buffer residual_;  ///< of trained units; empty without feedback
  Buffer encoded_;
  std::vector<std::size_t> residual_offsets_;  ///< by unit
  std::vector<std::vector<Place>> places_;     ///< by unit, ascending
  std::vector<float> read_;                    ///< what is read of a part again
};

}  // namespace psring::worker
