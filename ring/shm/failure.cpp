#include <cstring>

#include <psring/ring/shm/failure.h>

namespace psring::ring {

void ShmFailure::check() {
  if (!error_ && header_.broken.load(std::memory_order_acquire) == 2)
    error_ = Error(static_cast<ErrorKind>(header_.kind), header_.text);
  rethrow();
}

void ShmFailure::break_off(const Error& error) noexcept {
  if (error_) return;
  error_ = error;
  std::uint32_t whole = 0;
  if (header_.broken.compare_exchange_strong(whole, 1)) {
    header_.kind = static_cast<std::uint32_t>(error.kind());
    std::strncpy(header_.text, error.what(), kShmTextBytes - 1);
    header_.broken.store(2, std::memory_order_release);
    bells_.ring();
  }
}

}  // namespace psring::ring
