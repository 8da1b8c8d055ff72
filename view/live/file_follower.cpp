#include <algorithm>

#include <fcntl.h>
#include <sys/stat.h>

#include <psring/common/base/fd.h>
#include <psring/view/live/file_follower.h>

namespace psring::view {

/// A file that was cut and written again may be as long as before: the byte before the offset is then no newline.
bool FileFollower::is_same_file(int fd, const struct stat& status) const {
  if (status.st_ino != inode_ || status.st_dev != device_ || static_cast<std::uintmax_t>(status.st_size) < offset_)
    return false;
  char before = '\n';
  if (offset_ > 0 && !skipping_ && ::pread(fd, &before, 1, static_cast<off_t>(offset_ - 1)) != 1) return false;
  return before == '\n';
}

FileFollower::Step FileFollower::next() {
  Step step;
  const Fd fd(::open(file_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat status {};
  if (!fd || ::fstat(fd.get(), &status) != 0 || !S_ISREG(status.st_mode)) return step;
  const auto size = static_cast<std::uintmax_t>(status.st_size);
  if (inode_ == 0 || !is_same_file(fd.get(), status)) {
    step.replaced = inode_ != 0;
    inode_ = status.st_ino;
    device_ = status.st_dev;
    offset_ = size > tail_bytes_ ? size - tail_bytes_ : 0;
    skipping_ = offset_ > 0;
  }
  buffer_.resize(std::min<std::uintmax_t>(size - offset_, kMostBytes));
  const ssize_t got = ::pread(fd.get(), buffer_.data(), buffer_.size(), static_cast<off_t>(offset_));
  buffer_.resize(static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
  step.behind = size - offset_ > kMostBytes;

  std::size_t begin = 0;
  for (std::size_t end; (end = buffer_.find('\n', begin)) != std::string::npos; begin = end + 1)
    if (!std::exchange(skipping_, false)) step.lines.push_back(std::string_view(buffer_).substr(begin, end - begin));
  if (begin == 0 && buffer_.size() == kMostBytes) {  // no writer of ours makes such a line
    begin = buffer_.size();
    skipping_ = true;
  }
  offset_ += begin;
  return step;
}

}  // namespace psring::view
