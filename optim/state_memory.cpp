#include <algorithm>

#include <psring/common/base/text/error.h>
#include <psring/optim/block_codes.h>
#include <psring/optim/state_memory.h>

namespace psring::optim {
namespace {

static_assert(kCodeBlock == kCut, "cuts fall between blocks");

CodeMap map_of(std::size_t slot) { return slot == 0 ? CodeMap::signed_values : CodeMap::squares; }

MixedRange part_of(const MixedRange& range, Range part) {
  return {.parameters = range.parameters.part(part),
          .gradient = range.gradient.part(part),
          .master = range.master.empty() ? range.master : range.master.subspan(part.begin, part.size()),
          .state = {},
          .out = range.out.part(part)};
}

}  // namespace

std::size_t slot_bytes(const Optimizer& rule, std::size_t elements) {
  return rule.state_bits() == 8 ? code_bytes(elements) : elements * sizeof(float);
}

StateMemory::StateMemory(const Optimizer& rule, std::size_t elements, const std::function<Buffer(std::size_t)>& make)
    : rule_(&rule) {
  for (std::size_t slot = 0; slot < rule.slots(); ++slot) slots_[slot] = make(slot_bytes(rule, elements));
}

Elements StateMemory::slot(std::size_t slot, Range range) {
  if (in_f32()) return slots_[slot].elements(DType::f32).part(range);
  check(range.begin % kCut == 0 && range.size() % kCut == 0, "state of {} elements from {} on", range.size(),
        range.begin);
  return slots_[slot].elements(DType::u8).subspan(code_bytes(range.begin), code_bytes(range.size()));
}

void StateMemory::write(std::size_t slot, Range range, std::span<const float> values) {
  if (in_f32()) return copy(values, this->slot(slot, range));
  encode_blocks(map_of(slot), values, this->slot(slot, range).bytes());
}

void StateMemory::read(std::size_t slot, Range range, std::span<float> values) {
  if (in_f32()) return copy(this->slot(slot, range), Elements(values));
  decode_slot(slot, this->slot(slot, range), values);
}

void StateMemory::apply(const Update& update, MixedRange range, Range place) {
  const std::size_t slots = rule_->slots();
  if (in_f32()) {
    for (std::size_t s = 0; s < slots; ++s) range.state.slot[s] = slot(s, place).as<float>();
    return optim::apply(*rule_, update, range);
  }
  float values[Optimizer::kMaxSlots][kElementsBlock];
  for (std::size_t begin = 0; begin < place.size(); begin += kElementsBlock) {
    const Range part{begin, std::min(begin + kElementsBlock, place.size())};
    const Range there{place.begin + part.begin, place.begin + part.end};
    MixedRange now = part_of(range, part);
    for (std::size_t s = 0; s < slots; ++s) {
      now.state.slot[s] = std::span(values[s], part.size());
      read(s, there, now.state.slot[s]);
    }
    optim::apply(*rule_, update, now);
    for (std::size_t s = 0; s < slots; ++s) write(s, there, now.state.slot[s]);
  }
}

void decode_slot(std::size_t slot, ConstElements bytes, std::span<float> values) {
  decode_blocks(map_of(slot), bytes.bytes(), values);
}

}  // namespace psring::optim
