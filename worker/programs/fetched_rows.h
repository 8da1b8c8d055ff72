#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <psring/common/base/elements.h>
#include <psring/common/base/layout.h>
#include <psring/common/base/range.h>
#include <psring/common/device/arena.h>
#include <psring/common/device/buffer.h>

namespace psring::worker {

/// Bags of lookups: a bag is a range of lookups, and a lookup is a row by its place in FetchedRows::values.
struct Bags {
  std::span<const std::int64_t> places;
  std::span<const std::int64_t> begins;  ///< the first lookup of each bag, ascending from 0; empty: a bag a lookup
  std::span<const float> weights;        ///< of the lookups; empty: 1
  bool mean = false;                     ///< a bag is the mean of its rows; false: their sum

  std::size_t size() const { return begins.empty() ? places.size() : begins.size(); }
  Range lookups(std::size_t bag) const {
    if (begins.empty()) return {bag, bag + 1};
    const std::size_t end = bag + 1 < begins.size() ? static_cast<std::size_t>(begins[bag + 1]) : places.size();
    return {static_cast<std::size_t>(begins[bag]), end};
  }
  /// Throws usage unless the bags tile the lookups, and all places are below `rows`.
  void check(std::size_t rows) const;
};

/// The rows of one batch's keys in one table, and the gradients that the caller adds. The values are fixed once they
/// have arrived.
class FetchedRows {
 public:
  /// Makes room for the rows of these hashed keys, which are different and ascending.
  FetchedRows(std::size_t table, const TableLayout& layout, std::uint64_t version, std::span<const std::uint64_t> keys,
              std::span<const std::uint32_t> places, MemoryLedger& memory, Arena& arena);

  std::size_t table() const { return table_; }
  std::uint64_t version() const { return version_; }
  /// Memory order: the rows are written before it is released.
  bool arrived() const { return arrived_.load(std::memory_order_acquire); }
  std::size_t size() const { return count_; }
  std::size_t width() const { return width_; }
  std::span<const std::uint64_t> keys() const { return keys_.as<std::uint64_t>().first(count_); }
  std::span<const float> values() const {
    return (type_ == DType::f32 ? rows_ : wide_).as<float>().first(count_ * width_);
  }
  /// The place of each of the batch's keys.
  std::span<const std::int64_t> places() const { return places_; }
  /// Writes a row of `width` values for each bag. REQUIRES: arrived.
  void pool(const Bags& bags, std::span<float> out) const;

 private:
  friend class TableClient;
  Elements travelling() { return rows_.elements(type_).subspan(0, count_ * width_); }
  void set_arrived();
  std::span<float> gradients();

  const std::size_t table_;
  const std::uint64_t version_;
  const std::size_t width_;
  const DType type_;
  const std::size_t count_;
  MemoryLedger& memory_;
  Arena& arena_;  ///< its pages are mapped already when a buffer is made again
  Buffer keys_;
  Buffer rows_;  ///< in the type that travels
  Buffer wide_;  ///< in f32; empty if rows travel in f32
  std::vector<std::int64_t> places_;
  std::atomic<bool> arrived_{false};
  // Guarded by the tables' lock.
  bool sent_ = false;
  Buffer gradients_;                   ///< [count, width], from the first gradient on
  std::vector<std::uint8_t> touched_;  ///< 1: the row has a gradient
};

}  // namespace psring::worker
