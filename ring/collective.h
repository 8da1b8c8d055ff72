#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include <psring/common/base/range.h>

namespace psring::ring {

/// The kinds of operation that a backend implements. All other collectives are built from these (collectives.h).
enum class Collective : std::uint8_t { all_reduce, reduce_scatter, all_gather, broadcast, barrier, send, recv };
std::string_view to_string(Collective collective);

/// The ranges of a vector that each rank owns: parts[r] is a list of ranges for rank r. All ranges are disjoint.
using Parts = std::vector<std::vector<Range>>;
/// Returns one range per rank, as even as possible: rank r owns [r * count / n, (r + 1) * count / n).
Parts even_parts(std::size_t count, std::size_t ranks);
/// Returns one range per rank with the given sizes in elements, one after the other.
Parts parts_of_sizes(std::span<const std::size_t> sizes);

/// Payload bytes that one rank sends to other ranks and receives from them.
struct Moved {
  std::uint64_t sent = 0;
  std::uint64_t received = 0;
  friend bool operator==(const Moved&, const Moved&) = default;
};

/// The cost of a call for one rank, as its plan predicts it.
struct Cost : Moved {
  std::size_t latencies = 0;  ///< messages of an all-reduce that can only leave one after another
};

}  // namespace psring::ring
