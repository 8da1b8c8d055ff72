#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include <psring/ring/element.h>

namespace psring::ring {

/// The operation of a reduction. Associative; a plan may apply it in another order than the ranks' unless it says so.
/// sum, product, min and max take all numbers; mean takes floats; logical and bitwise operations take integers; maxloc
/// and minloc take Located (among equal values the lowest index wins).
class ReduceOp {
 public:
  enum class Kind : std::uint8_t {
    sum,
    mean,
    product,
    min,
    max,
    logical_and,
    logical_or,
    logical_xor,
    bit_and,
    bit_or,
    bit_xor,
    maxloc,
    minloc,
    own
  };
  /// into[i] = f(into[i], from[i]) for each element; both have the same type and count.
  using Combine = std::function<void(Vector into, ConstVector from)>;

  ReduceOp(Kind kind = Kind::sum) : kind_(kind) {}
  /// A user's own operation, associative and commutative; all ranks have to give the same name.
  static ReduceOp own(std::string name, Combine combine);
  /// Parses a name ("sum", "bit_and"); throws usage, naming the flag, for an unknown name.
  static ReduceOp parse(const char* flag, const std::string& name);

  Kind kind() const { return kind_; }
  /// REQUIRES: kind() == Kind::own.
  const Combine& combine() const { return own_->combine; }
  std::string name() const;
  /// Throws usage if the operation has no meaning for the type.
  void require_meaning(ElementType type) const;

 private:
  struct Own {
    std::string name;
    Combine combine;
  };

  Kind kind_;
  std::shared_ptr<const Own> own_;  ///< shared by its copies: each operation holds a copy
};

/// `to[k][i] = op over s of from[s][i]`, the sources taken in their order, for `count` elements. 16-bit floats are
/// accumulated in f32 and rounded once. mean is the sum times `mean_factor`; other operations ignore the factor.
/// A destination may be one of the sources; otherwise they do not overlap. REQUIRES: at least one source.
void reduce(const ReduceOp& op, ElementType type, std::span<const std::byte* const> from,
            std::span<std::byte* const> to, std::size_t count, double mean_factor);

}  // namespace psring::ring
