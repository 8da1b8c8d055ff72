#include <algorithm>
#include <cstring>
#include <iterator>

#include <psring/common/base/range.h>
#include <psring/common/base/system/mutex.h>
#include <psring/common/base/text/error.h>
#include <psring/common/device/arena.h>

namespace psring {

Arena::Arena(std::size_t capacity, Kind kind)
    : capacity_(round_up(capacity, kAlignment)),
      file_(kind == Kind::shared ? make_memory_file("psring", capacity_) : Fd()),
      mapping_(file_ ? Mapping(file_, capacity_) : Mapping(capacity_)) {
  if (capacity_ > 0) gaps_.emplace(0, capacity_);
}

std::span<std::byte> Arena::allocate(std::size_t bytes) {
  if (bytes == 0) return {};
  std::size_t offset = 0;
  std::size_t dirty = 0;
  {
    const MutexLock lock(mutex_);
    // Refuse anything larger than the arena first, so that rounding up cannot overflow.
    const std::size_t size = bytes > capacity_ ? bytes : round_up(bytes, kAlignment);
    const auto gap = std::find_if(gaps_.begin(), gaps_.end(), [&](const auto& g) { return g.second >= size; });
    if (gap == gaps_.end()) fail(ErrorKind::usage, "no room for {} bytes in an arena of {}", bytes, capacity_);
    offset = gap->first;
    const std::size_t rest = gap->second - size;
    gaps_.erase(gap);
    if (rest > 0) gaps_.emplace(offset + size, rest);
    dirty = std::min(bytes, touched_ - std::min(touched_, offset));
    touched_ = std::max(touched_, offset + size);
  }
  std::memset(base() + offset, 0, dirty);
  return {base() + offset, bytes};
}

void Arena::free(std::span<std::byte> span) noexcept {
  if (span.empty()) return;
  const MutexLock lock(mutex_);
  auto begin = static_cast<std::size_t>(span.data() - base());
  std::size_t end = begin + round_up(span.size(), kAlignment);
  auto next = gaps_.lower_bound(begin);
  if (next != gaps_.end() && next->first == end) {
    end += next->second;
    next = gaps_.erase(next);
  }
  if (next != gaps_.begin() && std::prev(next)->first + std::prev(next)->second == begin)
    begin = std::prev(next)->first;
  gaps_[begin] = end - begin;
}

}  // namespace psring
