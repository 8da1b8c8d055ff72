#pragma once

#include <cstddef>
#include <span>

#include <psring/common/base/range.h>
#include <psring/common/base/system/fd.h>

namespace psring {

/// Pages of this process: private pages, or pages of a memory file that other processes map, too. Sparse: a page uses
/// memory once it is touched. Huge pages are advised if the mapping has 2 MiB.
class Mapping {
 public:
  /// Maps private, zeroed pages.
  explicit Mapping(std::size_t bytes);
  /// Maps the first `bytes` of a memory file. REQUIRES: the file has at least `bytes` bytes and is sealed against
  /// shrinking, because access to a page behind the file's end kills the process with SIGBUS.
  Mapping(const Fd& file, std::size_t bytes);
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  ~Mapping();

  std::byte* data() const { return data_; }
  std::size_t size() const { return size_; }
  std::span<std::byte> bytes() const { return {data_, size_}; }
  /// Gives the whole pages within these bytes back to the host. Private pages are zero when they are touched again.
  void discard(Range bytes) const;

 private:
  void map(int fd, int flags);

  std::byte* reserved_ = nullptr;  ///< start of the reserved addresses; data_ lies inside, at mapping_alignment()
  std::size_t reserved_bytes_ = 0;
  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

/// The memory of this host, in bytes.
std::size_t host_memory_bytes();

/// Makes a zeroed memory file of `bytes` bytes with a sealed size. `name` shows in /proc/PID/maps.
Fd make_memory_file(const char* name, std::size_t bytes);

/// Returns the size of a memory file that another process made. Throws protocol if the file is not a memory file, could
/// shrink under a mapping, or could run out of reserved huge pages.
std::size_t checked_size(const Fd& file);

}  // namespace psring
