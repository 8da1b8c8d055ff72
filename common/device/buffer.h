#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <utility>

#include <psring/common/base/elements.h>
#include <psring/common/base/memory_ledger.h>
#include <psring/common/base/text/error.h>
#include <psring/common/device/arena.h>

namespace psring {

class Device;

/// Owns memory for tensors: zeroed, aligned to 64 bytes, and booked while the buffer lives. A buffer from an arena
/// reuses freed memory. Use an arena for buffers that other processes see (a shared arena), and for buffers that come
/// and go, because the first access to a fresh page takes twice the time. Without an arena the buffer has its own
/// pages. REQUIRES: arena and ledger outlive the buffer.
class Buffer {
 public:
  Buffer() = default;
  Buffer(std::size_t bytes, Category category, MemoryLedger& ledger, Arena* arena = nullptr);
  /// Allocates the memory of a device, aligned to 256 bytes. REQUIRES: the device outlives the buffer.
  Buffer(std::size_t bytes, Category category, MemoryLedger& ledger, Device& device);
  Buffer(Buffer&& other) noexcept { swap(other); }
  Buffer& operator=(Buffer&& other) noexcept {
    Buffer(std::move(other)).swap(*this);
    return *this;
  }
  ~Buffer();

  /// REQUIRES: the buffer lies in the host's memory.
  std::span<std::byte> bytes() {
    require_host();
    return bytes_;
  }
  std::span<const std::byte> bytes() const { return const_cast<Buffer*>(this)->bytes(); }
  std::size_t size_bytes() const { return bytes_.size(); }
  /// The buffer's address in the host's or the device's memory.
  std::byte* address() { return bytes_.data(); }
  const std::byte* address() const { return bytes_.data(); }

  /// Views the bytes as elements. REQUIRES: the size is a multiple of sizeof(T), and the buffer lies in the host's
  /// memory.
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
  Device* device_ = nullptr;  ///< null for the host's memory
  std::span<std::byte> bytes_;
  Category category_ = Category::parameters;
  MemoryLedger* ledger_ = nullptr;
};

/// Returns a buffer in the device's memory, or in the host's if `device` is null.
Buffer make_buffer(std::size_t bytes, Category category, MemoryLedger& ledger, Device* device);

}  // namespace psring
