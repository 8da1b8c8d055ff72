#pragma once

#include <cstddef>
#include <memory>
#include <optional>

#include <psring/common/base/layout.h>
#include <psring/common/proc/job.h>
#include <psring/optim/codec/compression.h>

namespace psring::bench {

/// The bytes of gradients on the wire with --compress. The time of encoding and decoding is not part of the model.
class CodedGradients {
 public:
  CodedGradients(const JobOptions& job, const Layout& layout);

  /// True if a codec encodes ranges of gradients.
  bool has_codec() const { return codec_ != nullptr; }
  /// Returns the bytes of an encoded range. REQUIRES: has_codec().
  double bytes(double elements) const { return static_cast<double>(codec_->bytes(static_cast<std::size_t>(elements))); }

  /// The bytes of the two all-reduces of PowerSGD, one after the other.
  struct Factors {
    double first = 0;
    double second = 0;
  };
  /// Returns nothing without PowerSGD.
  std::optional<Factors> factors(Range units) const;

 private:
  const Layout& layout_;
  const std::unique_ptr<optim::Codec> codec_;
  const std::optional<std::size_t> rank_;
};

}  // namespace psring::bench
