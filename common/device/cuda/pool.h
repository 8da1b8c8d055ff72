#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <span>
#include <utility>

namespace psring::cuda {

/// Where memory of a device comes from.
struct MemorySource {
  const char* name;                     ///< of the call
  std::byte* (*allocate)(std::size_t);  ///< null: it gives none
  void (*free)(std::byte*);
};

/// A device's memory. What is freed is kept for who asks for as much: cudaMalloc and cudaFree stop the device. What was
/// freed last comes first: who asks in the same order gets the same memory.
class Pool {
 public:
  /// Of what a piece is: `own` is for this process alone, `shared` may be registered with what moves it to others.
  enum class Kind { own, shared };

  Pool() = default;
  ~Pool();
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  /// From now on shared pieces of at least so many bytes come from there. They stay until the end: ranks whose memory
  /// is registered together give up none of it alone.
  void share_through(const MemorySource& source, std::size_t least_bytes);
  /// Null where its source gives none.
  std::byte* allocate(std::size_t bytes, Kind kind);
  const MemorySource& source(std::size_t bytes, Kind kind) const;
  /// What is queued may still be at it: whoever gets it next comes later in the queue.
  void free(std::byte* memory);

  /// The piece in which it lies, where that one came from share_through's source.
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
