#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include <psring/common/base/elements.h>
#include <psring/common/net/frame.h>

namespace psring {
class Device;
class MemoryLedger;
}  // namespace psring

namespace psring::optim {

/// The key of the random numbers that choose elements: the same at the writer of a gradient and at its readers.
struct GradientId {
  std::uint64_t seed = 0;
  std::uint64_t step = 0;
  std::size_t micro = 0;
  std::size_t unit = 0;
  std::size_t begin = 0;  ///< of the range in its unit
  std::size_t worker = 0;
};

/// Encodes a range of a gradient in fewer bytes, and decodes it. Stateless. Values are elements of f32, bytes are
/// elements of u8; both lie in the memory that the codec works in (the host's or a device's).
class Codec {
 public:
  virtual ~Codec() = default;
  virtual net::Encoding encoding() const = 0;
  /// Returns the encoded bytes of a range with this number of elements.
  virtual std::size_t bytes(std::size_t elements) const = 0;
  /// REQUIRES: out.size() == bytes(values.size()).
  virtual void encode(ConstElements values, const GradientId& id, Elements out) const = 0;
  /// Throws protocol if no range of this number of values is encoded as these bytes. A device's codec does not look at
  /// the bytes.
  virtual void check_form(ConstElements /*bytes*/, std::size_t /*elements*/) const {}
  /// Throws protocol if no values are encoded as these bytes.
  virtual void decode(ConstElements bytes, const GradientId& id, Elements out) const = 0;
};

/// Returns whether --compress names a compression of gradients, that is, anything but none. Throws usage if the name is
/// unknown.
bool compresses(const std::string& text);

/// Makes the codec of --compress:
///   none           returns null
///   bf16           16 bits per element
///   int8           8 bits per element, and a scale per 256 elements: the largest magnitude / 127
///   sign           1 bit per element, and a scale per 1024: the mean magnitude (Karimireddy et al., arXiv:1901.09847)
///   top-k:ratio=R  the R·n elements of the largest magnitude (at least one), with their positions, 8 bytes each
///   random-k:ratio=R  one element of each run of 1/R elements, drawn anew in each step, 4 bytes each: readers draw the
///                  same positions
///   power-sgd:rank=R  returns null: PowerSgd (power_sgd.h) compresses whole matrices by all-reduces, not a range
/// R is 0.01 by default. Without error feedback random-k divides values by R, so that the estimate is unbiased. With
/// every codec, a NaN or infinity in a range shows in the decoded range. Throws usage.
std::unique_ptr<Codec> make_codec(const std::string& text, bool error_feedback);

/// Returns the same codec for a device's memory, as work in the device's queue. All bits except a NaN's equal the
/// host's. Values are aligned to 16 bytes, bytes to 4. Decoding does not wait for the bytes, so it cannot report
/// malformed bytes; they change nothing but `out`. The kernels' scratch memory is the device's, booked as activations.
std::unique_ptr<Codec> make_device_codec(const std::string& text, bool error_feedback, Device& device);

}  // namespace psring::optim
