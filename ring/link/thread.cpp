#include <utility>

#include <psring/common/base/system/mutex.h>
#include <psring/ring/link/thread.h>

namespace psring::ring {

void LinkThread::start(std::function<bool()> busy, std::function<void()> work) {
  busy_ = std::move(busy);
  work_ = std::move(work);
  thread_ = std::thread([this] { run(); });
}

LinkThread::~LinkThread() {
  if (!thread_.joinable()) return;
  {
    ++wanted_;
    transport_.wake();
    const MutexLock lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void LinkThread::run() {
  MutexLock lock(mutex_);
  for (;;) {
    changed_.wait(mutex_, [&] {
      mutex_.assert_held();
      return stop_ || (wanted_ == 0 && busy_());
    });
    if (stop_) return;
    work_();
  }
}

}  // namespace psring::ring
