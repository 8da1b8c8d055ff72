#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <psring/common/base/elements.h>
#include <psring/common/base/layout.h>
#include <psring/common/base/memory_ledger.h>
#include <psring/common/device/buffer.h>
#include <psring/optim/compression.h>

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
  std::size_t residual_bytes() const { return residual_.size_bytes(); }

  /// Is what is lost kept? Then a unit's, if it is trained: between two steps it is this worker's state.
  bool feedback() const { return residual_.size_bytes() > 0; }
  Elements residual(std::size_t unit);

 private:
  struct Place {
    Range range;
    std::size_t offset = 0;
  };
  const Place& find(std::size_t unit, std::size_t begin) const;
  /// What is read of a part again.
  Elements read(Range range) { return read_.elements(DType::f32).subspan(0, range.size()); }

  const optim::Codec& codec_;
  const Layout& layout_;
  const std::uint64_t seed_;
  const std::size_t rank_;
  Buffer residual_;  ///< of trained units; empty without feedback
  Buffer encoded_;
  Buffer read_;
  std::vector<std::size_t> residual_offsets_;  ///< by unit
  std::vector<std::vector<Place>> places_;     ///< by unit, ascending
};

}  // namespace psring::worker
