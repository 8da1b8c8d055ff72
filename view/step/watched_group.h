#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include <psring/ring/inner_group.h>
#include <psring/ring/link/options.h>

namespace psring::view {

/// A collective, or a message between two ranks, as one rank of a simulated group calls it.
struct WatchedCall {
  std::uint32_t group = 0;
  std::uint64_t number = 0;  ///< of the collective in the group, or of the message between the pair
  std::size_t rank = 0;
  std::vector<std::size_t> members;  ///< places by rank
  ring::Call call;
  ring::Vector data;
};

/// Hears of the collectives of simulated groups, with their data.
class CallListener {
 public:
  virtual ~CallListener() = default;
  /// A rank is about to start the operation. `request` and `options` live until the call returns.
  virtual void starts(std::size_t place, const WatchedCall& call, const ring::Request& request,
                      const ring::LinkOptions& options) = 0;
  /// The rank knows that the operation is complete; its data is still there.
  virtual void ends(std::size_t place, const WatchedCall& call) = 0;
};

/// Wraps a group, and tells the listener of its operations and of those of its subgroups. `members`: places by rank;
/// `options`: those that the group was made with. REQUIRES: the listener outlives the group and its operations.
std::unique_ptr<ring::InnerGroup> make_watched_group(std::unique_ptr<ring::InnerGroup> group,
                                                     std::vector<std::size_t> members, ring::LinkOptions options,
                                                     CallListener& listener);

}  // namespace psring::view
