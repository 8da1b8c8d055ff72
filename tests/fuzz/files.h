#pragma once

#include <filesystem>
#include <span>
#include <string>

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <psring/common/base/system/fd.h>
#include <psring/tests/fuzz/input.h>

namespace psring::fuzz {

/// A file that lies in memory alone, and goes with this.
class MemoryFile {
 public:
  explicit MemoryFile(std::span<const std::byte> bytes) : file_(::memfd_create("psring-fuzz", MFD_CLOEXEC)) {
    require(file_ && ::write(file_.get(), bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size()), "a file");
  }
  std::string path() const { return "/proc/self/fd/" + std::to_string(file_.get()); }

 private:
  const Fd file_;
};

/// A folder of this process, in memory where the system has such; it goes with the process.
class Folder {
 public:
  Folder() {
    std::string name = (std::filesystem::is_directory("/dev/shm") ? "/dev/shm" : "/tmp");
    name += "/fuzz-XXXXXX";
    require(::mkdtemp(name.data()) != nullptr, "a folder");
    path_ = name;
  }
  ~Folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  std::string path() const { return path_.string(); }
  /// Writes a file, in place of one of this name.
  void write(const std::string& name, std::span<const std::byte> bytes) const {
    const Fd file(::open((path_ / name).c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
    require(file && ::write(file.get(), bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size()), "a file");
  }

 private:
  std::filesystem::path path_;
};

}  // namespace psring::fuzz
