#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <linux/magic.h>
#include <poll.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <psring/common/base/system/fd.h>
#include <psring/common/base/system/file.h>
#include <psring/common/base/text/error.h>

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

const char* kind_of(const struct stat& status) {
  if (S_ISREG(status.st_mode)) return "a file";
  if (S_ISDIR(status.st_mode)) return "a folder";
  if (S_ISFIFO(status.st_mode)) return "a pipe";
  if (S_ISSOCK(status.st_mode)) return "a socket";
  return "a device";
}

/// Opens a path for reading, and looks at the opened file: between a look at the path and the open, another file could
/// take its place. Without O_NONBLOCK, opening a named pipe would wait for its writer.
Fd open_input(const std::string& path, struct stat& status) {
  Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  const int error = errno;
  if (!fd && error == ENOENT) fail(ErrorKind::data, "{}: no such file", path);
  if (!fd && error == ENXIO && ::stat(path.c_str(), &status) == 0)  // a socket cannot be opened
    fail(ErrorKind::data, "{}: is {}, not a regular file", path, kind_of(status));
  if (!fd) fail(ErrorKind::data, "{}: cannot open: {}", path, reason(error));
  if (::fstat(fd.get(), &status) != 0) fail(ErrorKind::data, "{}: cannot open: {}", path, reason(errno));
  return fd;
}

/// Returns whether the file is a pipe in a folder, whose writer may come later. The writers of a pipe without a name
/// (/dev/stdin in a shell's pipeline) are there from the beginning.
bool is_named_pipe(const Fd& fd, const struct stat& status) {
  struct statfs system {};
  return S_ISFIFO(status.st_mode) && ::fstatfs(fd.get(), &system) == 0 && system.f_type != PIPEFS_MAGIC;
}

/// Waits until there are bytes to read, or until the last writer has closed the pipe.
void wait_for_bytes(const Fd& fd, const std::string& path) {
  pollfd entry{.fd = fd.get(), .events = POLLIN, .revents = 0};
  while (::poll(&entry, 1, -1) < 0)
    if (errno != EINTR) fail(ErrorKind::data, "{}: cannot read: {}", path, reason(errno));
}

/// `expects_writer`: the file ends only after a writer has come.
std::string read_to_end(const Fd& fd, const std::string& path, std::uint64_t most_bytes, bool expects_writer) {
  constexpr std::size_t kLeastBytes = std::size_t{1} << 16;
  std::string bytes;
  const auto check_size = [&](std::uint64_t size) {
    if (size > most_bytes) fail(ErrorKind::data, "{}: has more than {} bytes, which is too many", path, most_bytes);
  };
  if (struct stat status{}; ::fstat(fd.get(), &status) == 0)  // a sparse file can be larger than all memory
    check_size(static_cast<std::uint64_t>(status.st_size));
  for (std::size_t size = 0;;) {
    check_size(size);
    if (size == bytes.size()) bytes.resize(std::max(2 * size, kLeastBytes));
    const ssize_t got = ::read(fd.get(), bytes.data() + size, std::min(bytes.size() - size, kMostBytes));
    if (got > 0) {
      size += static_cast<std::size_t>(got);
      expects_writer = false;
    } else if (got == 0 && !expects_writer) {
      bytes.resize(size);
      return bytes;
    } else if (got == 0 || errno == EAGAIN) {
      wait_for_bytes(fd, path);
      expects_writer = false;
    } else if (errno != EINTR) {
      fail(ErrorKind::data, "{}: cannot read: {}", path, reason(errno));
    }
  }
}

}  // namespace

Fd open_regular(const std::string& path) {
  struct stat status {};
  Fd fd = open_input(path, status);
  if (!S_ISREG(status.st_mode)) fail(ErrorKind::data, "{}: is {}, not a regular file", path, kind_of(status));
  return fd;
}

void make_folder(const std::string& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (error) fail(ErrorKind::data, "{}: cannot create the folder: {}", path, error.message());
}

bool is_missing(const std::string& path) {
  struct stat status {};
  return ::stat(path.c_str(), &status) != 0 && (errno == ENOENT || errno == ENOTDIR);
}

void check_folder(const std::string& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0)
    fail(ErrorKind::data, "{}: {}", path, errno == ENOENT ? "no such folder" : reason(errno));
  if (!S_ISDIR(status.st_mode)) fail(ErrorKind::data, "{}: is {}, not a folder", path, kind_of(status));
}

std::string read_whole(const std::string& path, std::uint64_t most_bytes) {
  return read_whole(open_regular(path), path, most_bytes);
}

std::string read_whole(const Fd& fd, const std::string& path, std::uint64_t most_bytes) {
  return read_to_end(fd, path, most_bytes, false);
}

std::optional<std::string> read_whole_if_present(const std::string& path, std::uint64_t most_bytes) {
  if (is_missing(path)) return std::nullopt;
  return read_whole(path, most_bytes);
}

std::string read_stream(const std::string& path, std::uint64_t most_bytes) {
  struct stat status {};
  const Fd fd = open_input(path, status);
  if (!S_ISREG(status.st_mode) && !S_ISFIFO(status.st_mode) && ::isatty(fd.get()) == 0)
    fail(ErrorKind::data, "{}: is {}, not a regular file or a pipe", path, kind_of(status));
  return read_to_end(fd, path, most_bytes, is_named_pipe(fd, status));
}

InputFile::InputFile(std::string path) : path_(std::move(path)), fd_(open_regular(path_)) {
  struct stat status {};
  if (::fstat(fd_.get(), &status) != 0) fail(ErrorKind::data, "{}: cannot read: {}", path_, reason(errno));
  size_bytes_ = static_cast<std::uint64_t>(status.st_size);
}

InputFile::InputFile(InputFile&& other) noexcept = default;

int InputFile::duplicate() const { return ::fcntl(fd_.get(), F_DUPFD_CLOEXEC, 0); }

void InputFile::read(std::uint64_t offset, std::span<std::byte> out) const {
  while (!out.empty()) {
    const ssize_t got = ::pread(fd_.get(), out.data(), std::min(out.size(), kMostBytes), static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail(ErrorKind::data, "{}: cannot read: {}", path_, reason(errno));
    if (got == 0) fail(ErrorKind::data, "{}: truncated: ends at byte {}, {} more expected", path_, offset, out.size());
    out = out.subspan(static_cast<std::size_t>(got));
    offset += static_cast<std::uint64_t>(got);
  }
}

OutputFile::OutputFile(std::string path)
    : path_(std::move(path)), aside_(is_replaced(path_) ? fmt::format("{}.{}.partial", path_, ::getpid()) : path_) {
  // Without O_NONBLOCK, a pipe that nobody reads would be opened when somebody does.
  fd_ = ::open(aside_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NONBLOCK, 0666);
  struct stat status {};
  if (fd_ < 0 && errno == ENXIO && ::stat(path_.c_str(), &status) == 0 && S_ISFIFO(status.st_mode))
    fail(ErrorKind::data, "{}: cannot write: nobody reads this pipe", path_);
  if (fd_ < 0 || ::fcntl(fd_, F_SETFL, 0) != 0) fail_errno("create");
}

OutputFile::~OutputFile() {
  if (fd_ < 0) return;
  ::close(fd_);
  if (aside_ != path_) ::unlink(aside_.c_str());
}

void OutputFile::write(std::span<const std::byte> bytes) {
  check(fd_ >= 0, "{}: written to after it was committed", path_);
  if (!write_all(fd_, bytes)) fail_errno("write");
}

void OutputFile::commit(Durable durable) {
  check(fd_ >= 0, "{}: committed twice", path_);
  // A pipe and some devices cannot be flushed to a disk.
  if (durable == Durable::yes && ::fsync(fd_) != 0 && errno != EINVAL) fail_errno("write");
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
  OutputFile out(path);
  out.write(std::as_bytes(std::span(text)));
  out.commit(OutputFile::Durable::no);
}

void sync_folder(const std::string& path) {
  const Fd fd(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd || ::fsync(fd.get()) != 0) fail(ErrorKind::data, "{}: cannot write: {}", path, reason(errno));
}

}  // namespace psring
