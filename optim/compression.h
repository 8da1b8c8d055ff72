#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include <psring/common/net/frame.h>

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

/// How a range of a gradient is written in fewer bytes, and what is read of them again. Stateless.
class Codec {
 public:
  virtual ~Codec() = default;
  virtual net::Encoding encoding() const = 0;
  /// That so many elements take.
  virtual std::size_t bytes(std::size_t elements) const = 0;
  /// REQUIRES: out.size() == bytes(values.size()).
  virtual void encode(std::span<const float> values, const GradientId& id, std::span<std::byte> out) const = 0;
  /// Throws protocol where no values give these bytes.
  virtual void decode(std::span<const std::byte> bytes, const GradientId& id, std::span<float> out) const = 0;
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

}  // namespace psring::optim
