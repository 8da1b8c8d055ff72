#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace psring::worker {

/// The type in which a model's matrices are kept for generation. Vectors (biases, layer norms) and wpe stay in f32.
///
///   f32   4 bytes a weight
///   int8  w = scale q, q from -127 to 127, an f32 scale for each output channel
///   int4  w = scale (q - zero), q from 0 to 15, for each output channel and group of `group` inputs an f32 scale and,
///         with `affine`, a zero point of one byte; without, zero is 8 and q is at least 1
struct WeightFormat {
  enum class Kind : std::uint8_t { f32, int8, int4 };
  Kind kind = Kind::f32;
  std::size_t group = 64;  ///< of int4: 32, 64, 96 or 128 inputs
  bool affine = false;     ///< of int4

  /// Parses `f32`, `int8`, `int4`, `int4:group=64` or `int4:group=64,scheme=affine`. Throws usage, naming `flag`.
  static WeightFormat parse(std::string_view flag, const std::string& text);
  /// Returns the text that `parse` takes, with all its keys.
  std::string text() const;

  std::size_t groups(std::size_t inputs) const { return (inputs + group - 1) / group; }
  /// Returns the bytes of `columns` outputs of a matrix, with scales and zero points.
  std::size_t size_bytes(std::size_t inputs, std::size_t columns) const;

  friend bool operator==(const WeightFormat& a, const WeightFormat& b) {
    return a.kind == b.kind && (a.kind != Kind::int4 || (a.group == b.group && a.affine == b.affine));
  }
};

}  // namespace psring::worker
