#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <thread>
#include <type_traits>

namespace psring {

/// A value that one thread writes and other threads read, such as what a thread does at present. A write costs a few
/// stores and never waits; a read is repeated while a write is under way. A sequence lock, as in H.-J. Boehm, "Can
/// seqlocks get along with programming language memory models?" (MSPC 2012), with orders on the words instead of
/// fences.
template <class T>
requires std::is_trivially_copyable_v<T>
class SharedCell {
 public:
  /// For the one thread that writes.
  void write(const T& value) {
    Words words{};
    std::memcpy(words.data(), &value, sizeof value);
    const std::uint64_t number = number_.load(std::memory_order_relaxed);
    number_.store(number + 1, std::memory_order_relaxed);  // memory order: before the words, which are released
    for (std::size_t i = 0; i < kWords; ++i) words_[i].store(words[i], std::memory_order_release);
    number_.store(number + 2, std::memory_order_release);
  }

  /// Returns the last value that was written whole; T{} before the first one.
  T read() const {
    for (;; std::this_thread::yield()) {
      const std::uint64_t before = number_.load(std::memory_order_acquire);
      if (before == 0) return T{};
      if (before % 2 != 0) continue;
      Words words;
      for (std::size_t i = 0; i < kWords; ++i) words[i] = words_[i].load(std::memory_order_acquire);
      if (number_.load(std::memory_order_relaxed) != before) continue;  // memory order: after the acquired words
      T value;
      std::memcpy(static_cast<void*>(&value), words.data(), sizeof value);
      return value;
    }
  }

 private:
  static constexpr std::size_t kWords = (sizeof(T) + 7) / 8;
  using Words = std::array<std::uint64_t, kWords>;

  std::atomic<std::uint64_t> number_ = 0;  ///< odd: a write is under way
  std::array<std::atomic<std::uint64_t>, kWords> words_{};
};

}  // namespace psring
