#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace psring {

/// The name of a process, or of a stage of a pipeline, as events have it. It is copied without work.
struct PeerName {
  static constexpr std::uint32_t kNoRank = UINT32_MAX;

  std::string_view role = {};  ///< such as "worker"; static, or outlives the name; "": nobody
  std::uint32_t rank = kNoRank;

  bool empty() const { return role.empty(); }
  /// Returns "worker 3"; without a rank the role alone.
  std::string text() const;
  bool operator==(const PeerName&) const = default;
};

}  // namespace psring
