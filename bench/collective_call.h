#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <psring/common/base/dtype.h>
#include <psring/ring/reduce_op.h>

namespace psring::bench {

enum class CollectiveKind : std::uint8_t {
  all_reduce,
  reduce_scatter,
  all_gather,
  broadcast,
  reduce,
  gather,
  scatter,
  all_to_all,
  sendrecv,  ///< every rank sends to the next rank and receives from the previous one
};
/// Returns all kinds, in the order in which `all` measures them.
const std::vector<CollectiveKind>& all_collectives();
std::string_view to_string(CollectiveKind kind);
/// Returns what the collective does, in a line for --help.
const char* about(CollectiveKind kind);
/// Return whether the collective reduces, has a root, or splits a rank's vector into a part for each rank.
bool reduces(CollectiveKind kind);
bool has_root(CollectiveKind kind);
bool has_parts(CollectiveKind kind);

/// A collective as one rank calls it.
struct CollectiveCall {
  CollectiveKind kind = CollectiveKind::all_reduce;
  DType dtype = DType::f32;
  ring::ReduceOp::Kind redop = ring::ReduceOp::Kind::sum;
  std::uint32_t root = 0;
  std::uint32_t rank = 0;
  std::uint32_t ranks = 1;
  std::uint64_t count = 0;  ///< elements of the longest vector of a rank; with has_parts, a multiple of ranks

  std::size_t bytes() const { return count * size_bytes(dtype); }
  std::size_t part() const { return count / ranks; }
  bool at_root() const { return rank == root; }
  std::uint32_t next() const { return (rank + 1) % ranks; }
  std::uint32_t previous() const { return (rank + ranks - 1) % ranks; }

  /// Elements of this rank's input, and of its result.
  std::size_t input() const;
  std::size_t result() const;
  /// Returns nccl-tests' factor that turns the algorithm's bandwidth into a link's: busbw.
  double bus_factor() const;
  /// The bytes that each rank must at least read and write if all ranks share memory and divide the work evenly. With M
  /// = bytes() and n ranks: all_reduce M and M; reduce_scatter M and M/n; all_gather M (n-1)/n twice; broadcast,
  /// all_to_all and sendrecv M twice; reduce M and M/n; gather and scatter M/n twice.
  struct Traffic {
    std::size_t read = 0;
    std::size_t written = 0;
  };
  Traffic traffic() const;
};

/// Contents of the vectors: small whole numbers, for which every reduction is exact, different for each rank and
/// iteration. They repeat after a prime number of elements, so that a misplaced part is detected.
class Contents {
 public:
  explicit Contents(const CollectiveCall& call);

  /// Writes this rank's input of an iteration.
  void fill(std::byte* input, std::size_t iteration) const;
  /// Returns the number of wrong elements in the result.
  std::size_t count_wrong(const std::byte* result, std::size_t iteration) const;

 private:
  /// The `count` elements from `at` on are those of rank `from` from `offset` on, or the reduction over all ranks.
  struct Piece {
    std::size_t at = 0;
    std::size_t count = 0;
    std::size_t from = 0;
    std::size_t offset = 0;
  };
  std::vector<Piece> pieces() const;
  std::int64_t value(std::size_t rank, std::size_t index, std::size_t iteration) const;
  std::int64_t reduced(std::size_t index, std::size_t iteration) const;
  std::vector<std::byte> block(const std::vector<std::int64_t>& values) const;
  std::size_t differing(const std::byte* values, std::size_t count, const std::vector<std::byte>& expected,
                        std::size_t shift) const;

  const CollectiveCall call_;
  const std::size_t chunk_;  ///< elements that are filled at a time
  std::vector<std::byte> block_;
};

}  // namespace psring::bench
