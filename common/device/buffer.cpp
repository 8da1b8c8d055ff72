#include <utility>

#include <psring/common/device/buffer.h>
#include <psring/common/device/device.h>

namespace psring {

Buffer::Buffer(std::size_t bytes, Category category, MemoryLedger& ledger, Arena* arena)
    : own_(arena == nullptr ? std::make_unique<Arena>(bytes, Arena::Kind::local) : nullptr),
      arena_(arena == nullptr ? own_.get() : arena),
      bytes_(arena_->allocate(bytes)),
      category_(category),
      ledger_(&ledger) {
  ledger.book(category, bytes);
}

Buffer::Buffer(std::size_t bytes, Category category, MemoryLedger& ledger, Device& device)
    : device_(&device),
      bytes_(bytes == 0 ? nullptr : device.allocate(bytes, category), bytes),
      category_(category),
      ledger_(&ledger) {
  ledger.book(category, bytes);
}

Buffer::~Buffer() {
  if (ledger_ == nullptr) return;
  if (device_ != nullptr)
    device_->free(bytes_.data());
  else
    arena_->free(bytes_);
  ledger_->release(category_, bytes_.size());
}

Processor* Buffer::processor() const { return device_; }

void Buffer::swap(Buffer& other) noexcept {
  std::swap(own_, other.own_);
  std::swap(arena_, other.arena_);
  std::swap(device_, other.device_);
  std::swap(bytes_, other.bytes_);
  std::swap(category_, other.category_);
  std::swap(ledger_, other.ledger_);
}

Buffer make_buffer(std::size_t bytes, Category category, MemoryLedger& ledger, Device* device) {
  return device != nullptr ? Buffer(bytes, category, ledger, *device) : Buffer(bytes, category, ledger);
}

}  // namespace psring
