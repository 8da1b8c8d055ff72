#include <cerrno>
#include <chrono>
#include <filesystem>
#include <system_error>
#include <vector>

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sys/file.h>
#include <unistd.h>

#include <psring/common/base/system/folder_lock.h>
#include <psring/common/base/system/mutex.h>
#include <psring/common/base/text/error.h>

namespace psring {
namespace {

constexpr int kRetryMs = 10;

}  // namespace

/// The folders that this process has open to lock them. A forked process inherits the descriptors, and would keep the
/// locks when this one has ended: PyTorch's DataLoader leaves such processes for seconds. So it closes them at once.
struct FolderLock::Open {
  Mutex mutex;
  std::vector<FolderLock*> locks PSRING_GUARDED_BY(mutex);

  static Open& of_process() {
    static Open& open = []() -> Open& {
      ::pthread_atfork([] { of_process().take(); }, [] { of_process().give(); },
                       [] { of_process().leave_to_parent(); });
      return *new Open;  // never destroyed: a process may fork while it ends
    }();
    return open;
  }

  void take() PSRING_UNCHECKED { mutex.lock(); }
  void give() PSRING_UNCHECKED { mutex.unlock(); }
  /// In the forked process, which inherits the mutex as the fork took it.
  void leave_to_parent() PSRING_UNCHECKED {
    for (FolderLock* lock : locks) lock->folder_ = Fd();
    locks.clear();
    mutex.unlock();
  }
};

FolderLock::Registration::Registration(FolderLock* added) : lock(added) {
  Open& open = Open::of_process();
  const MutexLock guard(open.mutex);
  open.locks.push_back(lock);
}

FolderLock::Registration::~Registration() {
  Open& open = Open::of_process();
  const MutexLock guard(open.mutex);
  std::erase(open.locks, lock);
}

FolderLock::FolderLock(const std::string& folder, const Deadline& deadline)
    : folder_(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)), registration_(this) {
  if (!folder_) fail(ErrorKind::data, "{}: cannot open: {}", folder, std::generic_category().message(errno));
  // flock has no timeout. To interrupt its wait, a signal would have to be set up for the whole process.
  for (const SystemClock clock; ::flock(folder_.get(), LOCK_EX | LOCK_NB) != 0; ::poll(nullptr, 0, kRetryMs)) {
    if (errno == EINTR) continue;
    if (errno != EWOULDBLOCK) return;
    outcome_ = Outcome::in_use;
    deadline.check();
    if (clock.now() >= deadline.moment()) return;
  }
  outcome_ = Outcome::taken;
}

FolderLock::~FolderLock() {
  if (outcome_ == Outcome::taken && folder_) ::flock(folder_.get(), LOCK_UN);
}

bool FolderLock::is_held_by_other(const std::string& folder) {
  std::error_code none;  // set if the folder does not exist
  return std::filesystem::exists(folder, none) &&
         FolderLock(folder, SystemClock().now() + std::chrono::seconds(1)).outcome() == Outcome::in_use;
}

}  // namespace psring
