#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <span>
#include <utility>

namespace psring::cuda {

/// A source of device memory.
struct MemorySource {
  const char* name;                     ///< of the allocating call, for errors
  std::byte* (*allocate)(std::size_t);  ///< returns null if there is no memory
  void (*free)(std::byte*);
};

/// A device's memory. Freed memory is kept for later requests of the same size, because cudaMalloc and cudaFree stop
/// the device. The memory that was freed last is reused first, so that the same order of requests gets the same memory.
class Pool {
 public:
  /// The use of a piece: `own` memory is for this process only; `shared` memory may be registered with NCCL for
  /// collectives.
  enum class Kind { own, shared };

  Pool() = default;
  ~Pool();
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  /// Takes later shared pieces of at least `least_bytes` from `source`. These pieces are freed only at the end, because
  /// ranks that registered memory together cannot free it alone.
  void share_through(const MemorySource& source, std::size_t least_bytes);
  /// Returns null if the source has no memory.
  std::byte* allocate(std::size_t bytes, Kind kind);
  const MemorySource& source(std::size_t bytes, Kind kind) const;
  /// Queued work may still use the memory: the next owner's work comes later in the same queue.
  void free(std::byte* memory);

  /// Returns the piece that contains `memory`, if the piece came from share_through's source.
  std::optional<std::span<std::byte>> shared_piece(const std::byte* memory) const;

 private:
  struct Piece {
    std::size_t bytes;
    Kind kind;
    const MemorySource* source;
  };

  bool is_shared(std::size_t bytes, Kind kind) const;
  void trim();

  std::optional<MemorySource> shared_source_;
  std::size_t least_shared_bytes_ = 0;
  std::map<const std::byte*, Piece> pieces_;
  std::multimap<std::pair<Kind, std::size_t>, std::byte*> free_;
};

}  // namespace psring::cuda
