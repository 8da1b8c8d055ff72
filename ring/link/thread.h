#pragma once

#include <atomic>
#include <functional>
#include <thread>

#include <psring/common/base/system/mutex.h>
#include <psring/common/net/transport.h>

namespace psring::ring {

/// A background thread that works while its owner computes. The owner's calls run in `locked`, for which the thread
/// makes way at once. Without `start` there is no thread, and `locked` only calls its body.
class LinkThread {
 public:
  explicit LinkThread(net::Transport& transport) : transport_(transport) {}
  ~LinkThread();

  /// The thread calls `work` again and again while `busy` returns true. Both run under the lock; `work` throws nothing,
  /// and returns soon after Transport::wake.
  void start(std::function<bool()> busy, std::function<void()> work);

  template <class Body>
  auto locked(Body body) {
    if (!thread_.joinable()) return body();
    ++wanted_;
    transport_.wake();
    struct Leave {
      LinkThread& thread;
      ~Leave() {
        --thread.wanted_;
        thread.changed_.notify_one();
      }
    };
    const MutexLock lock(mutex_);
    const Leave leave{*this};  // under the lock: the thread cannot miss it between its look at `wanted_` and its sleep
    return body();
  }

 private:
  void run();

  net::Transport& transport_;
  std::function<bool()> busy_;
  std::function<void()> work_;
  Mutex mutex_;
  Condition changed_;
  std::atomic<unsigned> wanted_{0};  ///< calls of the owner that want the lock
  bool stop_ PSRING_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace psring::ring
