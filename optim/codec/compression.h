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

/// What the choice of random elements is drawn by: the same at who writes a gradient and who reads it.
struct GradientId {
  std::uint64_t seed = 0;
  std::uint64_t step = 0;
  std::size_t micro = 0;
  std::size_t unit = 0;
  std::size_t begin = 0;  ///< of the range in its unit
  std::size_t worker = 0;
};

/// How a range of a gradient is written in fewer bytes, and what is read of them again. Stateless. Values are f32,
/// bytes elements of u8; both lie where the codec works.
class Codec {
 public:
  virtual ~Codec() = default;
  virtual net::Encoding encoding() const = 0;
  /// That so many elements take.
  virtual std::size_t bytes(std::size_t elements) const = 0;
  /// REQUIRES: out.size() == bytes(values.size()).
  virtual void encode(ConstElements values, const GradientId& id, Elements out) const = 0;
  /// Throws protocol where no values give these bytes.
  virtual void decode(ConstElements bytes, const GradientId& id, Elements out) const = 0;
};

/// --compress:
///   none           null
///   bf16           16 bits an element
///   int8           8 bits, and a scale for each 256 elements: the largest magnitude / 127
///   sign           1 bit, and a scale for each 1024: the mean magnitude (Karimireddy et al., arXiv:1901.09847)
///   top-k:ratio=R  the R·n elements of the largest magnitude (at least one), with their places, 8 bytes each
///   random-k:ratio=R  one element of each run of 1/R, drawn anew in each step, 4 bytes each: who reads it draws the
///   same
/// R is 0.01 where nothing is said. Without error feedback random-k's values are divided by R, so that they are right
/// on average. Throws usage.
std::unique_ptr<Codec> make_codec(const std::string& text, bool error_feedback);

/// The same in a device's memory, with the host's bits but for those of a NaN: queued there. Values begin on multiples
/// of 16 bytes, bytes on multiples of 4. Nobody has waited for bytes that are read, so what no values give goes unseen;
/// it is written nowhere but into `out`. What kernels need of their own is booked as activations.
std::unique_ptr<Codec> make_device_codec(const std::string& text, bool error_feedback, Device& device,
                                         MemoryLedger& ledger);

}  // namespace psring::optim
