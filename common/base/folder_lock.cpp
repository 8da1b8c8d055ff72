#include <cerrno>
#include <chrono>
#include <filesystem>
#include <system_error>

#include <fcntl.h>
#include <poll.h>
#include <sys/file.h>
#include <unistd.h>

#include <psring/common/base/error.h>
#include <psring/common/base/folder_lock.h>

namespace psring {
namespace {

constexpr int kRetryMs = 10;

}  // namespace

FolderLock::FolderLock(const std::string& folder, const Deadline& deadline)
    : folder_(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)), owner_(::getpid()) {
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
  if (outcome_ == Outcome::taken && owner_ == ::getpid()) ::flock(folder_.get(), LOCK_UN);
}

bool FolderLock::is_held_by_other(const std::string& folder) {
  std::error_code none;  // set if the folder does not exist
  return std::filesystem::exists(folder, none) &&
         FolderLock(folder, SystemClock().now() + std::chrono::seconds(1)).outcome() == Outcome::in_use;
}

}  // namespace psring
