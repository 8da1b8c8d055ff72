#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include <psring/common/base/clock.h>
#include <psring/common/base/layout.h>
#include <psring/common/base/range.h>
#include <psring/common/device/buffer.h>
#include <psring/ring/element.h>

namespace psring::ring {
class ProcessGroup;
class ReduceOp;
class Work;
}  // namespace psring::ring

namespace psring::worker {

/// This process's part of every layer under tensor parallelism: part `rank` of `size`, and the group with which the
/// layers sum (Shoeybi et al., "Megatron-LM", arXiv:1909.08053). A value: layers hold copies, which share the
/// connection to the group. A default-constructed part is the whole layer, and its collectives do nothing.
///
/// The ranks of a tensor group compute the same samples. All of them call the same collectives, in the same order.
class TensorPart {
 public:
  TensorPart() = default;
  /// Not connected yet: for a layout, predictions, and initial values. REQUIRES: rank < size.
  TensorPart(std::size_t rank, std::size_t size);

  /// Connects this part and all its copies. REQUIRES: a group of size() ranks, in which this process has rank(); it
  /// outlives all passes through the layers, as does the clock. `memory`: see below; if the group has an arena, the
  /// memory lies there.
  void connect(ring::ProcessGroup& group, const Clock& clock, Buffer memory) const;

  bool whole() const { return size_ == 1; }
  std::size_t rank() const { return rank_; }
  std::size_t size() const { return size_; }
  /// A number that the group's first rank alone contributes to a sum, such as a bias.
  bool first() const { return rank_ == 0; }
  /// Returns this part's indices of `count`: as even as possible, [rank count / size, (rank + 1) count / size).
  Range of(std::size_t count) const { return of(count, rank_); }
  /// The same of another rank's part.
  Range of(std::size_t count, std::size_t rank) const { return {rank * count / size_, (rank + 1) * count / size_}; }

  /// Returns the first bytes of the memory that layers without an activation of their own exchange numbers in: of the
  /// loss. REQUIRES: connected, with as much memory.
  std::span<std::byte> memory(std::size_t bytes) const;
  std::size_t memory_bytes() const { return whole() ? 0 : connection_->memory.size_bytes(); }

  // Collectives. Each returns once the result is there, and throws as ring::Work::wait does.

  /// Every rank's values become the sum over all ranks. All ranks get the same bits.
  void sum(std::span<float> values) const;
  void sum(std::span<double> values) const;
  /// Every rank's values become the largest of all ranks' values.
  void largest(std::span<float> values) const;
  /// Every rank receives each rank's part of the values: sizes[r] of them come from rank r, one part after the other.
  void gather(std::span<float> values, std::span<const std::size_t> sizes) const;

  /// The time that this process has spent in the collectives so far.
  Nanoseconds waited() const { return whole() ? Nanoseconds{0} : connection_->waited; }

 private:
  struct Connection {
    ring::ProcessGroup* group = nullptr;
    const Clock* clock = nullptr;
    Buffer memory;
    Nanoseconds waited{0};  ///< in collectives
  };
  void reduce(ring::Vector values, const ring::ReduceOp& op) const;
  ring::ProcessGroup& connected() const;
  void wait(ring::Work work, Moment start) const;

  std::size_t rank_ = 0;
  std::size_t size_ = 1;
  std::shared_ptr<Connection> connection_ = nullptr;  ///< shared with all copies; null: whole
};

/// Marks a tensor as a slice of a whole one, of which it has `ranges` of an axis that is `extent` long.
void cut(TensorSpec& tensor, std::size_t axis, std::size_t extent, std::vector<Range> ranges);

}  // namespace psring::worker
