#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <psring/common/base/dtype.h>
#include <psring/common/base/elements.h>
#include <psring/common/base/range.h>

namespace psring {

/// How a tensor starts: all `a`, uniform in [-a, a), or normal with standard deviation `a`.
/// Each element depends on (seed, tensor, index in the tensor) alone.
struct Init {
  enum class Kind : std::uint8_t { constant, uniform, normal };
  Kind kind = Kind::constant;
  float a = 0;
};

/// A trainable tensor as its layer declares it. Names are unique in a model: two layers that name the
/// same tensor share it.
struct TensorSpec {
  std::string name;
  std::vector<std::size_t> shape;  ///< row-major
  Init init;

  std::size_t elements() const;
};

/// A tensor's place in its unit's flat buffer. `offset` is a multiple of kCut.
struct TensorLayout {
  TensorSpec spec;
  std::uint32_t id = 0;  ///< its position in the model, whatever the units are: the key of its random numbers
  std::size_t offset = 0;
};

/// A unit: tensors that move together, in one flat buffer of `elements` (padding counted).
struct UnitLayout {
  std::string name;
  std::vector<TensorLayout> tensors;
  std::size_t elements = 0;
  bool trained = true;  ///< else it keeps the values that it starts with: no gradient, no optimizer state (--freeze)
};

/// The grain of an exchange with servers, where nothing else is said: 1 MiB of f32. See pieces.h.
inline constexpr std::size_t kPieceElements = std::size_t{256} << 10;
inline constexpr std::size_t kLeastPieceElements = std::size_t{16} << 10;

/// All units of a model, each padded so that it can be cut among `owners`.
struct Layout {
  std::vector<UnitLayout> units;
  std::size_t owners = 1;
  std::size_t piece_elements = kPieceElements;  ///< a multiple of kCut, from kLeastPieceElements to kPieceElements

  /// f32, f16 or bf16: what workers compute with, and what they hand over. Gradients travel as they are kept.
  DType parameter_type = DType::f32;
  DType gradient_type = DType::f32;
  std::size_t pushes = 1;  ///< of a worker in a step, of each unit: micro-batches that owners add up

  std::size_t elements() const;  ///< of all units, padding counted
  /// Units that are trained, in order: all that gradients, updates and optimizer state are of.
  std::vector<std::size_t> trained() const;
  std::size_t trained_elements() const;
  std::size_t trained_elements(std::size_t unit) const { return units[unit].trained ? units[unit].elements : 0; }
  std::size_t parameter_bytes() const { return elements() * size_bytes(parameter_type); }
  std::size_t gradient_bytes() const { return trained_elements() * size_bytes(gradient_type); }
  std::size_t parameter_bytes(std::size_t unit) const { return units[unit].elements * size_bytes(parameter_type); }
  std::size_t gradient_bytes(std::size_t unit) const { return trained_elements(unit) * size_bytes(gradient_type); }
  Partition partition(std::size_t unit) const { return {units[unit].elements, owners}; }
  /// Where each unit begins in a vector of all: trained ones first, in order, so that a vector of what only these have
  /// has the same places, and neighbours among them lie next to each other.
  std::vector<std::size_t> offsets() const;
};

/// One tensor or a list of them that become one unit.
struct UnitSpec {
  std::string name;
  std::vector<TensorLayout> tensors;  ///< offsets are not read: make_layout gives them
  bool trained = true;
};

/// Places each unit's tensors in order, each on a multiple of kCut, and pads the unit to kCut * owners.
Layout make_layout(std::vector<UnitSpec> units, std::size_t owners);

/// Writes the initial values of elements `range` of the unit; padding is zero. out.size() == range.size().
void initialise(const UnitLayout& unit, Range range, std::uint64_t seed, std::span<float> out);

/// Makes what lies between tensors zero. `values`: elements `range` of the unit.
void clear_padding(const UnitLayout& unit, Range range, Elements values);

}  // namespace psring
