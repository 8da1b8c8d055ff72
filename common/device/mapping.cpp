#include <cerrno>
#include <cstdint>
#include <cstring>

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <psring/common/base/text/error.h>
#include <psring/common/device/mapping.h>
#include <psring/common/device/pages.h>

namespace psring {

Mapping::Mapping(std::size_t bytes) : size_(round_up(bytes, page_bytes())) { map(-1, MAP_PRIVATE | MAP_ANONYMOUS); }

Mapping::Mapping(const Fd& file, std::size_t bytes) : size_(bytes) { map(file.get(), MAP_SHARED); }

void Mapping::map(int fd, int flags) {
  if (size_ == 0) return;
  // Huge pages must start at their own alignment: reserve one more, and start at the aligned address.
  const std::size_t page = page_bytes();
  const std::size_t alignment = mapping_alignment(size_, page);
  reserved_bytes_ = size_ + (alignment > page ? alignment : 0);
  void* reserved = ::mmap(nullptr, reserved_bytes_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (reserved == MAP_FAILED) fail(ErrorKind::data, "cannot reserve {} bytes: {}", size_, std::strerror(errno));
  reserved_ = static_cast<std::byte*>(reserved);
  const auto address = reinterpret_cast<std::uintptr_t>(reserved);
  std::byte* start = reserved_ + (round_up(address, alignment) - address);
  if (::mmap(start, size_, PROT_READ | PROT_WRITE, flags | MAP_FIXED | MAP_NORESERVE, fd, 0) == MAP_FAILED) {
    const int error = errno;
    ::munmap(reserved, reserved_bytes_);
    fail(ErrorKind::data, "cannot map {} bytes: {}", size_, std::strerror(error));
  }
  data_ = start;
  // Only advice: a kernel without huge pages is slower, but correct.
  if (alignment > page) ::madvise(start, size_, MADV_HUGEPAGE);
}

Mapping::~Mapping() {
  if (reserved_ != nullptr) ::munmap(reserved_, reserved_bytes_);
}

void Mapping::discard(Range bytes) const {
  const Range pages = whole_pages(bytes, page_bytes());
  // Only advice: without it the pages stay in use.
  if (!pages.empty()) ::madvise(data_ + pages.begin, pages.size(), MADV_DONTNEED);
}

std::size_t host_memory_bytes() { return static_cast<std::size_t>(::sysconf(_SC_PHYS_PAGES)) * page_bytes(); }

Fd make_memory_file(const char* name, std::size_t bytes) {
  Fd file(::memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!file || ::ftruncate(file.get(), static_cast<off_t>(bytes)) != 0 ||
      ::fcntl(file.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0)
    fail(ErrorKind::data, "cannot make a memory file of {} bytes: {}", bytes, std::strerror(errno));
  return file;
}

std::size_t checked_size(const Fd& file) {
  const int seals = ::fcntl(file.get(), F_GET_SEALS);
  struct stat status {};
  struct statfs system {};
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0 || ::fstat(file.get(), &status) != 0 || status.st_size < 0 ||
      ::fstatfs(file.get(), &system) != 0 || system.f_type != TMPFS_MAGIC)
    fail(ErrorKind::protocol, "not a memory file that is sealed against shrinking");
  return static_cast<std::size_t>(status.st_size);
}

}  // namespace psring
