#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <psring/common/base/text/error.h>
#include <psring/ring/collective.h>
#include <psring/ring/element.h>
#include <psring/ring/reduce_op.h>

namespace psring::ring {

/// The fingerprint of the barrier in which a rank waits for the others before it leaves: no other barrier matches it.
inline constexpr std::uint64_t kLast = 1;

/// An operation as a rank called it: all ranks have to call the same.
struct Call {
  Collective collective = Collective::barrier;
  ReduceOp::Kind op = ReduceOp::Kind::sum;
  ElementType type;
  std::uint32_t root = 0;  ///< of a broadcast; the receiver of a send or recv
  std::uint64_t count = 0;
  std::uint64_t fingerprint = 0;  ///< of the parts and of the name of a user's reduction; kLast of a last barrier

  friend bool operator==(const Call&, const Call&) = default;
};

/// "all_reduce of 1024 f32 (sum)"
std::string describe(const Call& call);
/// "all_reduce #17 (4.0 MiB)"
std::string name_of(const Call& call, std::uint64_t number);

/// "rank 3", "ranks 1, 3 and 5". REQUIRES: at least one.
std::string names_of(const std::vector<std::size_t>& ranks);
/// "[ring] rank 2: in all_reduce #17 (4.0 MiB), waiting for ranks 1 and 3"
std::string waiting_in(std::size_t rank, const Call& call, std::uint64_t number,
                       const std::vector<std::size_t>& awaited);

/// The error of two ranks that called different operations with the same number: peer_lost if one of them has ended its
/// program, else usage.
Error mismatch(std::uint64_t number, std::size_t rank, const Call& ours, std::size_t peer, const Call& theirs);

/// The same in every process. Hash functions, not cryptographic.
std::uint64_t fingerprint(const Parts& parts);
std::uint64_t fingerprint(const ReduceOp& op);  ///< 0 unless the reduction is a user's own

}  // namespace psring::ring
