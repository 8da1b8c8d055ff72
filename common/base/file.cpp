#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <fstream>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <psring/common/base/error.h>
#include <psring/common/base/fd.h>
#include <psring/common/base/file.h>

namespace psring {
namespace {

/// Bytes per read or write call, at most: Linux moves less than 2 GiB per call.
constexpr std::size_t kMostBytes = std::size_t{1} << 30;

// strerror is not thread-safe.
std::string reason(int error) { return std::generic_category().message(error); }

/// Whether a file of this name is replaced by renaming a complete one. A link, a pipe or a device is written in place:
/// renaming would put a regular file in the place of /dev/null or /dev/stdout.
bool is_replaced(const std::string& path) {
  struct stat status {};
  return ::lstat(path.c_str(), &status) != 0 || S_ISREG(status.st_mode) || S_ISDIR(status.st_mode);
}

}  // namespace

InputFile::InputFile(std::string path) : path_(std::move(path)) {
  // Without O_NONBLOCK, opening a named pipe would wait for its writer.
  fd_ = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd_ < 0 && errno == ENOENT) fail(ErrorKind::data, "{}: no such file", path_);
  if (fd_ < 0) fail(ErrorKind::data, "{}: cannot open: {}", path_, reason(errno));
  struct stat status {};
  if (::fstat(fd_, &status) != 0 || !S_ISREG(status.st_mode)) {
    ::close(fd_);
    fail(ErrorKind::data, "{}: not a regular file", path_);
  }
  size_bytes_ = static_cast<std::uint64_t>(status.st_size);
}

InputFile::InputFile(InputFile&& other) noexcept
    : path_(std::move(other.path_)), fd_(std::exchange(other.fd_, -1)), size_bytes_(other.size_bytes_) {}

InputFile::~InputFile() {
  if (fd_ >= 0) ::close(fd_);
}

void InputFile::read(std::uint64_t offset, std::span<std::byte> out) const {
  while (!out.empty()) {
    const ssize_t got = ::pread(fd_, out.data(), std::min(out.size(), kMostBytes), static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail(ErrorKind::data, "{}: cannot read: {}", path_, reason(errno));
    if (got == 0) fail(ErrorKind::data, "{}: truncated: ends at byte {}, {} more expected", path_, offset, out.size());
    out = out.subspan(static_cast<std::size_t>(got));
    offset += static_cast<std::uint64_t>(got);
  }
}

OutputFile::OutputFile(std::string path)
    : path_(std::move(path)), aside_(is_replaced(path_) ? fmt::format("{}.{}.partial", path_, ::getpid()) : path_) {
  fd_ = ::open(aside_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (fd_ < 0) fail_errno("create");
}

OutputFile::~OutputFile() {
  if (fd_ < 0) return;
  ::close(fd_);
  if (aside_ != path_) ::unlink(aside_.c_str());
}

void OutputFile::write(std::span<const std::byte> bytes) {
  check(fd_ >= 0, "{}: written to after it was committed", path_);
  while (!bytes.empty()) {
    const ssize_t put = ::write(fd_, bytes.data(), std::min(bytes.size(), kMostBytes));
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) fail_errno("write");
    bytes = bytes.subspan(static_cast<std::size_t>(put));
  }
}

void OutputFile::commit() {
  check(fd_ >= 0, "{}: committed twice", path_);
  // A pipe and some devices cannot be flushed to a disk.
  if (::fsync(fd_) != 0 && errno != EINVAL) fail_errno("write");
  if (aside_ != path_ && std::rename(aside_.c_str(), path_.c_str()) != 0) fail_errno("create");
  ::close(std::exchange(fd_, -1));
}

void OutputFile::fail_errno(const char* doing) const {
  fail(ErrorKind::data, "{}: cannot {}: {}", path_, doing, reason(errno));
}

void flush(std::ofstream& out, const std::string& path) {
  const int earlier = errno;  // left by an earlier write, or by the failed open
  errno = 0;
  if (out.good() && out.flush()) return;
  const int error = errno != 0 ? errno : earlier;
  fail(ErrorKind::data, "{}: cannot write{}", path, error != 0 ? ": " + reason(error) : "");
}

void write_whole(const std::string& path, std::string_view text) {
  const std::string aside = is_replaced(path) ? path + ".partial" : path;
  try {
    std::ofstream out(aside, std::ios::binary);
    out << text;
    flush(out, path);
  } catch (const Error&) {
    if (aside != path) std::remove(aside.c_str());
    throw;
  }
  if (aside == path || std::rename(aside.c_str(), path.c_str()) == 0) return;
  const int error = errno;
  std::remove(aside.c_str());
  fail(ErrorKind::data, "{}: cannot write: {}", path, reason(error));
}

void sync_folder(const std::string& path) {
  const Fd fd(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd || ::fsync(fd.get()) != 0) fail(ErrorKind::data, "{}: cannot write: {}", path, reason(errno));
}

}  // namespace psring
