#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <psring/common/base/elements.h>
#include <psring/common/base/layout.h>
#include <psring/common/base/memory_ledger.h>
#include <psring/common/device/buffer.h>
#include <psring/optim/codec/compression.h>
#include <psring/worker/state/error_feedback.h>

namespace psring::worker {

/// Encodes a worker's gradients, with error feedback if the job asks for it, and decodes the gradients of all workers.
/// Gradients are f32. They lie, like all memory of the compressor, on the processor of the codec.
class Compressor {
 public:
  /// A unit's range that is encoded by itself.
  struct Part {
    std::size_t unit = 0;
    Range range;
  };
  /// `feedback`: null: the loss of the codec is dropped. `rank`: of this worker. `device`: the codec's; null: the host.
  /// REQUIRES: codec, feedback and layout outlive it.
  Compressor(const optim::Codec& codec, ErrorFeedback* feedback, const Layout& layout, const std::vector<Part>& parts,
             std::uint64_t seed, std::size_t rank, MemoryLedger& ledger, Device* device = nullptr);

  const optim::Codec& codec() const { return codec_; }
  /// The id of a worker's gradient of a range, for the codec.
  optim::GradientId id(std::size_t unit, std::size_t begin, std::uint64_t step, std::size_t micro,
                       std::size_t worker) const {
    return {seed_, step, micro, unit, begin, worker};
  }
  /// The bytes of a part, which stay until it is encoded again.
  ConstElements encode(std::size_t unit, Range range, std::uint64_t step, std::size_t micro, ConstElements gradient);
  /// The bytes of all parts of a unit. REQUIRES: the parts were named one after the other.
  ConstElements encode(std::size_t unit, std::uint64_t step, std::size_t micro, ConstElements gradient);
  /// The bytes of all parts, in the order in which the parts were named.
  ConstElements encoded() { return encoded_.elements(DType::u8); }

  /// The bytes of a part from one worker.
  struct Written {
    std::size_t worker = 0;
    ConstElements bytes;
  };
  /// Computes the mean of the gradients that these workers wrote, added up in their order.
  void mean(std::size_t unit, Range range, std::uint64_t step, std::size_t micro, std::span<const Written> all,
            Elements out);

  /// Bytes that are booked as communication: the codes of all parts, and room to decode one part.
  std::size_t encoded_bytes() const { return encoded_.size_bytes(); }
  std::size_t communication_bytes() const { return encoded_.size_bytes() + read_.size_bytes(); }

 private:
  struct Place {
    Range range;
    std::size_t offset = 0;
  };
  const Place& find(std::size_t unit, std::size_t begin) const;
  /// Room for the decoded values of a part.
  Elements read(Range range) { return read_.elements(DType::f32).subspan(0, range.size()); }

  const optim::Codec& codec_;
  const Layout& layout_;
  const std::uint64_t seed_;
  const std::size_t rank_;
  ErrorFeedback* const feedback_;
  Buffer encoded_;
  Buffer read_;
  std::vector<std::vector<Place>> places_;  ///< by unit, ascending
};

}  // namespace psring::worker
