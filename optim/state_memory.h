#pragma once

#include <cstddef>
#include <functional>
#include <span>

#include <psring/common/base/range.h>
#include <psring/common/device/buffer.h>
#include <psring/optim/mixed.h>
#include <psring/optim/optimizer.h>

namespace psring::optim {

/// Returns the bytes of one state slot. REQUIRES: elements is a multiple of kCut.
std::size_t slot_bytes(const Optimizer& rule, std::size_t elements);

/// An optimizer's state for `elements` elements: f32, or bytes in blocks (block_codes.h) if the rule keeps 8 bits. The
/// first slot of a rule with 8 bits is signed, the second holds squares. Ranges begin and end at multiples of kCut.
class StateMemory {
 public:
  StateMemory() = default;
  /// `make` makes a slot's buffer of the given number of zero bytes. Zero bytes mean the value zero in 32 and in 8
  /// bits. REQUIRES: the rule outlives this object.
  StateMemory(const Optimizer& rule, std::size_t elements, const std::function<Buffer(std::size_t)>& make);

  /// The memory of a slot's range: f32, or u8 with 8 bits.
  Elements slot(std::size_t slot, Range range);
  void write(std::size_t slot, Range range, std::span<const float> values);
  void read(std::size_t slot, Range range, std::span<float> values);
  bool in_f32() const { return rule_ == nullptr || rule_->state_bits() == 32; }

  /// optim::apply with the state of `place`; range.state is ignored. With 8 bits, blocks are decoded, updated and
  /// encoded while they are in the first-level cache. Several threads may apply to different places. REQUIRES: the
  /// state lies in the host's memory.
  void apply(const Update& update, MixedRange range, Range place);

 private:
  const Optimizer* rule_ = nullptr;
  Buffer slots_[Optimizer::kMaxSlots];
};

/// Decodes bytes that `slot` returned, or that another process's did.
void decode_slot(std::size_t slot, ConstElements bytes, std::span<float> values);

}  // namespace psring::optim
