#include <algorithm>
#include <cstdint>
#include <functional>

#include <sys/mman.h>

#include <psring/common/device/pages.h>
#include <psring/common/device/pages_ahead.h>

namespace psring {
namespace {

constexpr std::size_t kAtOnce = std::size_t{2} << 20;  ///< the process can map nothing meanwhile

bool within(std::span<const std::byte> part, std::span<const std::byte> whole) {
  return !part.empty() && !std::less<>{}(part.data(), whole.data()) &&
         std::less<>{}(part.data(), whole.data() + whole.size());
}

/// Only advice: where it fails, the first access takes longer.
void touch_now(std::span<std::byte> bytes) {
#ifdef MADV_POPULATE_WRITE
  const auto before = reinterpret_cast<std::uintptr_t>(bytes.data()) % page_bytes();
  ::madvise(bytes.data() - before, bytes.size() + before, MADV_POPULATE_WRITE);
#endif
}

}  // namespace

PagesAhead::~PagesAhead() {
  {
    const MutexLock lock(mutex_);
    ends_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void PagesAhead::touch(std::span<std::byte> bytes) {
  if (bytes.empty()) return;
  {
    const MutexLock lock(mutex_);
    waiting_.push_back(bytes);
  }
  changed_.notify_all();
  if (!thread_.joinable()) thread_ = std::thread([this] { run(); });
}

void PagesAhead::forget(std::span<std::byte> bytes) {
  const MutexLock lock(mutex_);
  std::erase_if(waiting_, [&](std::span<std::byte> other) { return within(other, bytes); });
  changed_.wait(mutex_, [&] {
    mutex_.assert_held();
    return !within(touched_, bytes);
  });
}

void PagesAhead::run() {
  MutexLock lock(mutex_);
  while (true) {
    changed_.wait(mutex_, [&] {
      mutex_.assert_held();
      return ends_ || !waiting_.empty();
    });
    if (ends_) return;
    std::span<std::byte>& next = waiting_.front();
    touched_ = next.first(std::min(next.size(), kAtOnce));
    next = next.subspan(touched_.size());
    if (next.empty()) waiting_.pop_front();
    const std::span<std::byte> bytes = touched_;
    lock.unlock();
    touch_now(bytes);
    lock.lock();
    touched_ = {};
    changed_.notify_all();
  }
}

}  // namespace psring
