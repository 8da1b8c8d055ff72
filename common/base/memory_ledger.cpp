#include <psring/common/base/memory_ledger.h>
#include <psring/common/base/text/names.h>

namespace psring {

std::string_view to_string(Category category) {
  static constexpr std::array<std::string_view, kCategories> kNames = {
      "parameters", "gradients", "optimizer", "activations", "communication", "staging", "index"};
  return name_in(kNames, category);
}

void MemoryLedger::book(Category category, std::size_t bytes) {
  Entry& entry = entries_[static_cast<std::size_t>(category)];
  const std::size_t now = entry.current.fetch_add(bytes) + bytes;
  std::size_t peak = entry.peak.load();
  while (now > peak && !entry.peak.compare_exchange_weak(peak, now)) {
  }
}

void MemoryLedger::release(Category category, std::size_t bytes) {
  entries_[static_cast<std::size_t>(category)].current.fetch_sub(bytes);
}

std::size_t MemoryLedger::current_bytes(Category category) const {
  return entries_[static_cast<std::size_t>(category)].current.load();
}

std::size_t MemoryLedger::current_bytes() const {
  std::size_t sum = 0;
  for (const Entry& entry : entries_) sum += entry.current.load();
  return sum;
}

std::size_t MemoryLedger::peak_bytes(Category category) const {
  return entries_[static_cast<std::size_t>(category)].peak.load();
}

}  // namespace psring
