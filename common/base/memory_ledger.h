#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace psring {

/// The purpose of a buffer: the categories of the memory formulas. If a device computes, all categories count the
/// device's memory, except `staging`: the host's copies of the data that the device sends and receives. `index`: where
/// a table's rows lie, by key.
enum class Category : std::uint8_t { parameters, gradients, optimizer, activations, communication, staging, index };

inline constexpr std::size_t kCategories = 7;

std::string_view to_string(Category category);

/// Books every buffer of a process by category: the bytes held now, and the peak.
/// Safe for use from several threads.
class MemoryLedger {
 public:
  void book(Category category, std::size_t bytes);
  void release(Category category, std::size_t bytes);

  std::size_t current_bytes(Category category) const;
  std::size_t current_bytes() const;  ///< of all categories
  std::size_t peak_bytes(Category category) const;

 private:
  struct Entry {
    std::atomic<std::size_t> current{0};
    std::atomic<std::size_t> peak{0};
  };
  std::array<Entry, kCategories> entries_;
};

}  // namespace psring
