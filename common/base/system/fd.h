#pragma once

#include <cstddef>
#include <span>
#include <utility>

#include <unistd.h>

namespace psring {

/// Owns a file descriptor; -1 means that there is no file.
class Fd {
 public:
  Fd() = default;
  explicit Fd(int fd) : fd_(fd) {}
  Fd(Fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Fd& operator=(Fd&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Fd() {
    if (fd_ >= 0) ::close(fd_);
  }

  int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }

 private:
  int fd_ = -1;
};

/// Returns a new eventfd whose reads and writes do not wait; `flags`: EFD_SEMAPHORE or 0. Throws data.
Fd make_eventfd(int flags = 0);

struct Pipe {
  Fd read_end;
  Fd write_end;
};

/// Throws data.
Pipe make_pipe();

/// Writes all bytes. Returns false, with errno, if that fails.
bool write_all(int fd, std::span<const std::byte> bytes);

}  // namespace psring
