#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <optional>
#include <unordered_map>

namespace psring::net {

inline constexpr std::size_t kMostStrangers = 1024;  ///< clients of a listener that have not proved the key yet
inline constexpr int kAcceptsAtATime = 64;  ///< bounds one call, so that many clients do not stall the open links

/// Chooses the connection that a listener turns away when too many of its clients have not proved the key yet: the
/// oldest one of the origin (a process, or a host) that has the most. So an origin that opens many connections loses
/// its own, and cannot push out the clients of other origins. `waiting`: oldest first. `origin_of` returns an optional
/// number; none: the connection does not count. Returns the end if no connection counts.
template <class List, class OriginOf>
auto most_crowding(List& waiting, const OriginOf& origin_of) {
  std::unordered_map<std::uint64_t, std::size_t> counts;
  std::size_t most = 0;
  auto chosen = waiting.end();
  for (auto at = waiting.end(); at != waiting.begin();) {
    --at;
    const std::optional<std::uint64_t> origin = origin_of(*at);
    if (!origin) continue;
    const std::size_t count = ++counts[*origin];
    if (count < most) continue;
    most = count;
    chosen = at;
  }
  return chosen;
}

}  // namespace psring::net
