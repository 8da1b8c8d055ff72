#include <algorithm>
#include <array>
#include <functional>
#include <utility>
#include <vector>

#include <absl/container/flat_hash_map.h>

#include <psring/common/base/text/error.h>
#include <psring/optim/rows/row_index.h>
#include <psring/optim/rows/slot_memory.h>

namespace psring::optim {
namespace {

constexpr std::size_t kSlotBytes = 17;
constexpr std::size_t kLeastCapacity = 15;
constexpr std::size_t kAhead = 16;  ///< keys between a prefetch and the search for the key

/// Keys are hashed already.
struct Identity {
  std::size_t operator()(std::uint64_t key) const { return key; }
};

/// The most keys that a map holds in `capacity` slots: between 5/8 and 7/8 of the slots, different for each map.
constexpr std::size_t most_keys(std::size_t map, std::size_t capacity) { return capacity * (640 + map) / 1024; }

/// The slots of a map with `keys` keys. Slot numbers of the library are powers of 2, minus 1.
constexpr std::size_t capacity_of(std::size_t map, std::size_t keys) {
  if (keys == 0) return 0;
  std::size_t capacity = kLeastCapacity;
  while (most_keys(map, capacity) < keys) capacity = 2 * capacity + 1;
  return capacity;
}

/// Gives a map its slots from a SlotMemory.
template <class T>
struct Allocator {
  using value_type = T;

  explicit Allocator(SlotMemory& of) : memory(&of) {}
  template <class Other>
  Allocator(const Allocator<Other>& other) : memory(other.memory) {}
  T* allocate(std::size_t count) { return reinterpret_cast<T*>(memory->allocate(count * sizeof(T))); }
  void deallocate(T* block, std::size_t count) { memory->free(reinterpret_cast<std::byte*>(block), count * sizeof(T)); }
  template <class Other>
  bool operator==(const Allocator<Other>& other) const {
    return memory == other.memory;
  }

  SlotMemory* memory;
};

using Map = absl::flat_hash_map<std::uint64_t, std::uint32_t, Identity, std::equal_to<>,
                                Allocator<std::pair<const std::uint64_t, std::uint32_t>>>;

void reserve(Map& map, std::size_t capacity) {
  map.reserve(capacity - capacity / 8);  // the most keys for which the library takes so many slots
  check(map.capacity() == capacity, "a hash map of {} slots, {} expected", map.capacity(), capacity);
}

}  // namespace

struct RowIndex::Maps {
  Maps() : all(kMaps, Map(Map::allocator_type(memory))) {}

  SlotMemory memory{kMaps + 1};  // erase() makes a map anew beside the old one
  std::vector<Map> all;
};

std::size_t RowIndex::booked_bytes(std::span<const std::size_t, kMaps> keys) {
  std::size_t bytes = 0;
  for (std::size_t map = 0; map < kMaps; ++map) bytes += kSlotBytes * capacity_of(map, keys[map]);
  return bytes;
}

RowIndex::RowIndex(MemoryLedger& ledger) : ledger_(ledger), maps_(std::make_unique<Maps>()) {}

RowIndex::~RowIndex() { ledger_.release(Category::index, booked_); }

void RowIndex::find(std::span<const std::uint64_t> keys, std::span<std::uint32_t> rows) const {
  check(keys.size() == rows.size(), "{} keys and {} rows", keys.size(), rows.size());
  for (std::size_t i = 0; i < std::min(kAhead, keys.size()); ++i) maps_->all[map_of(keys[i])].prefetch(keys[i]);
  for (std::size_t i = 0; i < keys.size(); ++i) {
    if (i + kAhead < keys.size()) maps_->all[map_of(keys[i + kAhead])].prefetch(keys[i + kAhead]);
    const auto& map = maps_->all[map_of(keys[i])];
    const auto found = map.find(keys[i]);
    rows[i] = found == map.end() ? kNoRow : found->second;
  }
}

void RowIndex::erase(std::span<const std::uint64_t> keys) {
  std::array<std::size_t, kMaps> before{};
  for (const std::uint64_t key : keys) {
    auto& map = maps_->all[map_of(key)];
    before[map_of(key)] = std::max(before[map_of(key)], map.size());
    check(map.erase(key) == 1, "the key {:#x} has no row", key);
  }
  size_ -= keys.size();
  for (std::size_t number = 0; number < kMaps; ++number) {
    if (before[number] == 0) continue;
    auto& map = maps_->all[number];
    const std::size_t capacity = capacity_of(number, map.size());
    Map anew(map.get_allocator());
    if (capacity > 0) reserve(anew, capacity);
    anew.insert(map.begin(), map.end());
    map = std::move(anew);
    const std::size_t old = capacity_of(number, before[number]);
    ledger_.release(Category::index, kSlotBytes * (old - capacity));
    booked_ -= kSlotBytes * (old - capacity);
  }
}

void RowIndex::insert(std::uint64_t key, std::uint32_t row) {
  const std::size_t number = map_of(key);
  auto& map = maps_->all[number];
  const std::size_t before = capacity_of(number, map.size());
  const std::size_t after = capacity_of(number, map.size() + 1);
  if (after != before) {
    reserve(map, after);
    ledger_.release(Category::index, kSlotBytes * before);
    ledger_.book(Category::index, kSlotBytes * after);
    booked_ += kSlotBytes * (after - before);
  }
  check(map.emplace(key, row).second, "the key {:#x} has a row", key);
  ++size_;
}

}  // namespace psring::optim
