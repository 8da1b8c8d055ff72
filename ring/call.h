#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include <psring/ring/process_group.h>

namespace psring::ring {

/// An operation as a rank called it: what all ranks have to say alike.
struct Call {
  Collective collective = Collective::barrier;
  ReduceOp::Kind op = ReduceOp::Kind::sum;
  ElementType type;
  std::uint32_t root = 0;
  std::uint64_t count = 0;
  std::uint64_t fingerprint = 0;  ///< of the parts, or the name of a user's operation

  friend bool operator==(const Call&, const Call&) = default;
};

/// "all_reduce of 1024 f32 (sum)"
std::string describe(const Call& call);
/// "all_reduce #17 (4.0 MiB)"
std::string name_of(const Call& call, std::uint64_t number);

/// The line for ranks whose operations of one number differ.
std::string mismatch(std::uint64_t number, std::size_t rank, const Call& ours, std::size_t peer, const Call& theirs);

/// Throw usage where these do not fit the group, or the vector.
void check_parts(const Parts& parts, std::size_t count, std::size_t ranks);
void check_rank(std::size_t rank, std::size_t ranks);

std::uint64_t fingerprint(const Parts& parts);
std::uint64_t fingerprint(const ReduceOp& op);  ///< 0 but for a user's own

}  // namespace psring::ring
