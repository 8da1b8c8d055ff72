#include <iterator>

#include <cuda_runtime.h>

#include <psring/common/base/text/error.h>
#include <psring/common/device/cuda/errors.h>
#include <psring/common/device/cuda/pool.h>

namespace psring::cuda {
namespace {

constexpr MemorySource kCuda{"cudaMalloc",
                             [](std::size_t bytes) {
                               void* memory = nullptr;
                               const cudaError_t error = cudaMalloc(&memory, bytes);
                               if (error == cudaErrorMemoryAllocation) {
                                 cudaGetLastError();  // clears the error, so that the next call does not return it
                                 memory = nullptr;
                               } else {
                                 check_call(error, "cudaMalloc");
                               }
                               return static_cast<std::byte*>(memory);
                             },
                             [](std::byte* memory) { cudaFree(memory); }};

}  // namespace

Pool::~Pool() {
  for (const auto& [memory, piece] : pieces_) piece.source->free(const_cast<std::byte*>(memory));
}

void Pool::share_through(const MemorySource& source, std::size_t least_bytes) {
  shared_source_ = source;
  least_shared_bytes_ = least_bytes;
}

bool Pool::is_shared(std::size_t bytes, Kind kind) const {
  return kind == Kind::shared && shared_source_ && bytes >= least_shared_bytes_;
}

const MemorySource& Pool::source(std::size_t bytes, Kind kind) const {
  return is_shared(bytes, kind) ? *shared_source_ : kCuda;
}

std::byte* Pool::allocate(std::size_t bytes, Kind kind) {
  const MemorySource& source = this->source(bytes, kind);
  if (!is_shared(bytes, kind)) kind = Kind::own;
  if (const auto [first, behind] = free_.equal_range({kind, bytes}); first != behind)
    return free_.extract(std::prev(behind)).mapped();
  std::byte* memory = source.allocate(bytes);
  if (memory == nullptr) {
    trim();
    memory = source.allocate(bytes);
  }
  if (memory != nullptr) pieces_.emplace(memory, Piece{bytes, kind, &source});
  return memory;
}

void Pool::free(std::byte* memory) {
  if (memory == nullptr) return;
  const Piece& piece = pieces_.at(memory);
  free_.emplace(std::pair(piece.kind, piece.bytes), memory);
}

std::optional<std::span<std::byte>> Pool::shared_piece(const std::byte* memory) const {
  auto piece = pieces_.upper_bound(memory);
  if (piece == pieces_.begin()) return std::nullopt;
  --piece;
  const auto& [begin, entry] = *piece;
  if (entry.kind == Kind::own || memory >= begin + entry.bytes) return std::nullopt;
  return std::span(const_cast<std::byte*>(begin), entry.bytes);
}

void Pool::trim() {
  for (auto each = free_.begin(); each != free_.end();) {
    const auto& [kind, bytes] = each->first;
    if (kind == Kind::shared) {
      ++each;
      continue;
    }
    kCuda.free(each->second);
    pieces_.erase(each->second);
    each = free_.erase(each);
  }
}

}  // namespace psring::cuda
