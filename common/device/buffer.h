#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <utility>

#include <psring/common/base/elements.h>
#include <psring/common/base/error.h>
#include <psring/common/base/memory_ledger.h>
#include <psring/common/device/arena.h>

namespace psring {

class Device;

/// Owns memory for tensors: zero on creation, on a multiple of 64 bytes, booked for its life. With an
/// arena it is cut from that one, and what is freed is used again: for buffers that other processes
/// see (a shared arena) or that come and go (fresh pages halve the speed of whatever touches them
/// first). Without, it has pages of its own. REQUIRES: arena and ledger outlive it.
class Buffer {
 public:
  Buffer() = default;
  Buffer(std::size_t bytes, Category category, MemoryLedger& ledger, Arena* arena = nullptr);
  /// In the memory of a device, on a multiple of 256 bytes. REQUIRES: it outlives the buffer.
  Buffer(std::size_t bytes, Category category, MemoryLedger& ledger, Device& device);
  Buffer(Buffer&& other) noexcept { swap(other); }
  Buffer& operator=(Buffer&& other) noexcept {
    Buffer(std::move(other)).swap(*this);
    return *this;
  }
  ~Buffer();

  /// REQUIRES: they are the host's.
  std::span<std::byte> bytes() {
    require_host();
    return bytes_;
  }
  std::span<const std::byte> bytes() const { return const_cast<Buffer*>(this)->bytes(); }
  std::size_t size_bytes() const { return bytes_.size(); }
  /// Where it lies, in whose memory ever.
  std::byte* address() { return bytes_.data(); }
  const std::byte* address() const { return bytes_.data(); }

  /// The bytes as elements. REQUIRES: they are a whole number of them, and the host's.
  template <class T>
  std::span<T> as() {
    require_host();
    check(bytes_.size() % sizeof(T) == 0, "{} bytes are no whole number of elements of {}", bytes_.size(), sizeof(T));
    return {reinterpret_cast<T*>(bytes_.data()), bytes_.size() / sizeof(T)};
  }
  template <class T>
  std::span<const T> as() const {
    return const_cast<Buffer*>(this)->as<T>();
  }
  Elements elements(DType type) { return {bytes_.data(), bytes_.size() / psring::size_bytes(type), type, processor()}; }

 private:
  void swap(Buffer& other) noexcept;
  Processor* processor() const;
  void require_host() const { check(device_ == nullptr, "the host reads a buffer of a device"); }

  std::unique_ptr<Arena> own_;
  Arena* arena_ = nullptr;
  Device* device_ = nullptr;  ///< null: the host's memory
  std::span<std::byte> bytes_;
  Category category_ = Category::parameters;
  MemoryLedger* ledger_ = nullptr;
};

}  // namespace psring
