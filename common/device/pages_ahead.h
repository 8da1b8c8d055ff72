#pragma once

#include <cstddef>
#include <deque>
#include <span>
#include <thread>

#include <psring/common/base/system/mutex.h>

namespace psring {

/// Touches pages before they are needed, in a thread of its own, so that who fills a mapping from its begin to its end
/// does not wait for the host: the first access to a huge page takes a fraction of a millisecond, and some milliseconds
/// if the host is a virtual machine that fetches the page from its own. A kernel before Linux 5.14 does nothing.
class PagesAhead {
 public:
  PagesAhead() = default;
  PagesAhead(const PagesAhead&) = delete;
  PagesAhead& operator=(const PagesAhead&) = delete;
  ~PagesAhead();

  /// Begins to touch the pages of these bytes, whose content stays. They are of a private mapping.
  void touch(std::span<std::byte> bytes);
  /// From now on nothing within these bytes is touched: they may be unmapped.
  void forget(std::span<std::byte> bytes);

 private:
  void run();

  Mutex mutex_;
  Condition changed_;
  std::deque<std::span<std::byte>> waiting_ PSRING_GUARDED_BY(mutex_);
  std::span<std::byte> touched_ PSRING_GUARDED_BY(mutex_);  ///< at this moment
  bool ends_ PSRING_GUARDED_BY(mutex_) = false;
  std::thread thread_;  ///< from the first call of `touch` on
};

}  // namespace psring
