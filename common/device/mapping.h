#pragma once

#include <cstddef>
#include <span>

#include <psring/common/base/fd.h>

namespace psring {

/// Pages of this process: private ones, or those of a memory file that other processes map too. Sparse:
/// a page costs memory once it is touched. Huge pages are advised where there is room for one.
class Mapping {
 public:
  /// Private pages, zero.
  explicit Mapping(std::size_t bytes);
  /// The first `bytes` of a memory file. REQUIRES: the file has as many and is sealed against shrinking,
  /// for whoever touches a page behind the end of a file dies of SIGBUS.
  Mapping(const Fd& file, std::size_t bytes);
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  ~Mapping();

  std::byte* data() const { return data_; }
  std::size_t size() const { return size_; }
  std::span<std::byte> bytes() const { return {data_, size_}; }

 private:
  void map(int fd, int flags);

  std::byte* reserved_ = nullptr;  ///< what was asked of the kernel, from here: data_ lies in it, on a huge page
  std::size_t reserved_bytes_ = 0;
  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

/// A memory file of `bytes`, zero, whose size is sealed. `name` shows in /proc/PID/maps.
Fd make_memory_file(const char* name, std::size_t bytes);

/// The size of a memory file that another process made. Throws protocol where it is none, or could
/// shrink under a mapping, or could run out of reserved huge pages.
std::size_t checked_size(const Fd& file);

}  // namespace psring
