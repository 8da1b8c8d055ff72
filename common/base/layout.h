#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <psring/common/base/dtype.h>
#include <psring/common/base/elements.h>
#include <psring/common/base/range.h>

namespace psring {

class CounterRng;

/// Initial values of a tensor: all `a`, uniform in [-a, a), or normal with standard deviation `a`.
/// Each element depends only on (seed, tensor, index in the tensor).
struct Init {
  enum class Kind : std::uint8_t { constant, uniform, normal };
  Kind kind = Kind::constant;
  float a = 0;
};

/// The part of a tensor that one worker of a tensor-parallel group holds: ranges of the whole tensor along one axis,
/// one after the other. Columns [a, b) of a matrix are the range [a, b) along axis 1; some heads of an attention
/// layer's joint projection are three ranges of columns.
struct TensorSlice {
  std::vector<std::size_t> whole_shape;  ///< row-major
  std::size_t axis = 0;
  std::vector<Range> ranges;
};

/// A trainable tensor as its layer declares it. Names are unique in a model: two layers that name the same tensor share
/// it.
struct TensorSpec {
  std::string name;
  std::vector<std::size_t> shape;  ///< row-major; of the slice, if this is one
  Init init;
  std::optional<TensorSlice> slice = std::nullopt;  ///< the part of the whole tensor that this is; nothing: all of it

  std::size_t elements() const;
  /// The shape of the whole tensor.
  const std::vector<std::size_t>& whole_shape() const { return slice ? slice->whole_shape : shape; }
};

/// Consecutive elements of a slice that are consecutive in the whole tensor, too.
struct Run {
  std::size_t begin = 0;        ///< in the slice
  std::size_t whole_begin = 0;  ///< in the whole tensor
  std::size_t size = 0;
};

/// Returns the runs that the elements `range` of a tensor consist of, ascending: one run if the tensor is no slice.
std::vector<Run> runs_of(const TensorSpec& tensor, Range range);

/// A tensor's place in its unit's flat buffer. `offset` is a multiple of kCut.
struct TensorLayout {
  TensorSpec spec;
  std::uint32_t id = 0;  ///< position in the model, independent of the units: the key of the tensor's random numbers
  std::size_t offset = 0;
  /// This worker counts the tensor in norms, and saves it. False if another worker of the same copy of the model holds
  /// the same elements and counts them: a tied embedding at two stages, a layer norm at all ranks of a tensor group.
  bool counted = true;
};

/// A unit: tensors that move together, in one flat buffer of `elements` elements, including padding.
struct UnitLayout {
  std::string name;
  std::vector<TensorLayout> tensors;
  std::size_t elements = 0;
  bool trained = true;  ///< false: the unit keeps its initial values and has no gradient and no optimizer state
                        ///< (--freeze)
};

/// The hash buckets of every table: the elements of a table as a unit. A row belongs to the bucket that the top 20 bits
/// of its hashed key name (optim/rows/row_hash.h).
inline constexpr std::size_t kBuckets = std::size_t{1} << 20;
/// The most owners of a table: each has at least one block of kCut buckets.
inline constexpr std::size_t kMostTableOwners = kBuckets / kCut;

/// A table: rows of `width` elements, by 64-bit keys. A row appears when it is trained for the first time.
struct TableLayout {
  std::string name;
  std::size_t width = 0;
  DType type = DType::f32;    ///< of rows and row gradients on the wire: f32 or bf16; owners keep f32
  Init init = {};             ///< of a row's values, by key
  std::size_t most_keys = 0;  ///< in the batch of one worker
  std::size_t most_bags = 0;  ///< as well; a bag is the keys of one feature of one sample
  std::size_t pieces = 1;     ///< of each owner: ranges of buckets that are updated separately
  std::size_t lookahead = 0;  ///< steps by which workers pull rows ahead
  std::size_t row_bytes() const { return width * size_bytes(type); }
};

/// Default size of a piece, the grain of the exchange with servers: 1 MiB of f32. See pieces.h.
inline constexpr std::size_t kPieceElements = std::size_t{256} << 10;
inline constexpr std::size_t kLeastPieceElements = std::size_t{16} << 10;

/// All units of a model, each padded to a multiple of kCut * owners, so that every owner has a range of it.
struct Layout {
  std::vector<UnitLayout> units;
  std::size_t owners = 1;
  CutWeights weights;                           ///< of the owners; even, or for as many owners
  std::size_t piece_elements = kPieceElements;  ///< a multiple of kCut, from kLeastPieceElements to kPieceElements

  /// Types that workers compute with and exchange: f32, f16 or bf16. Gradients are sent in the type that they are
  /// stored in.
  DType parameter_type = DType::f32;
  DType gradient_type = DType::f32;
  std::size_t pushes = 1;  ///< pushes of each unit by a worker in one step: micro-batches that the owners add up
  /// Tables that the owners keep beside the units. No formula of units counts them. Frames number them from
  /// units.size() on.
  std::vector<TableLayout> tables = {};

  std::size_t elements() const;  ///< of all units, including padding
  /// The trained units, in order. Only these have gradients, updates and optimizer state.
  std::vector<std::size_t> trained() const;
  std::size_t trained_elements() const;
  std::size_t trained_elements(std::size_t unit) const { return units[unit].trained ? units[unit].elements : 0; }
  std::size_t parameter_bytes() const { return elements() * size_bytes(parameter_type); }
  std::size_t gradient_bytes() const { return trained_elements() * size_bytes(gradient_type); }
  std::size_t parameter_bytes(std::size_t unit) const { return units[unit].elements * size_bytes(parameter_type); }
  std::size_t gradient_bytes(std::size_t unit) const { return trained_elements(unit) * size_bytes(gradient_type); }
  /// REQUIRES: the layout outlives the partition.
  Partition partition(std::size_t unit) const { return {units[unit].elements, owners, &weights}; }
  /// The elements of an owner's ranges: of one unit, of all units, and of the trained units.
  std::size_t owned(std::size_t unit, std::size_t owner) const { return partition(unit).range(owner).size(); }
  std::size_t owned_elements(std::size_t owner) const;
  std::size_t owned_trained_elements(std::size_t owner) const;
  /// The offset of each unit in one vector of all units. Trained units come first, in order, so that a vector of only
  /// the trained units has the same offsets, and neighbouring trained units are contiguous.
  std::vector<std::size_t> offsets() const;
};

/// A tensor or a list of tensors that become one unit.
struct UnitSpec {
  std::string name;
  std::vector<TensorLayout> tensors;  ///< make_layout sets the offsets and ignores those given here
  bool trained = true;
};

/// Places each unit's tensors in order, each at a multiple of kCut, and pads the unit to a multiple of kCut * owners.
Layout make_layout(std::vector<UnitSpec> units, std::size_t owners);

/// Returns the buckets of an owner: blocks of kCut, of which the owners have equally many to within one. REQUIRES:
/// owners <= kMostTableOwners.
Range table_buckets(std::size_t owners, std::size_t owner);
/// Returns one of the `pieces` ranges that an owner's buckets are cut into, as equal as blocks of kCut allow. Pieces
/// may be empty.
Range table_piece(Range owned, std::size_t pieces, std::size_t piece);

/// Writes `init`'s values of the elements from `first` on, with random numbers of `rng`.
void initialise(const Init& init, const CounterRng& rng, std::size_t first, std::span<float> out);

/// Writes the initial values of the unit's elements `range`; padding is zero. REQUIRES: out.size() == range.size().
void initialise(const UnitLayout& unit, Range range, std::uint64_t seed, std::span<float> out);

/// Sets the padding between tensors to zero. `values`: the unit's elements `range`.
void clear_padding(const UnitLayout& unit, Range range, Elements values);

}  // namespace psring
