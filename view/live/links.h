#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <tuple>

#include <psring/common/base/json.h>

namespace psring::view {

/// The traffic between processes, from the counts that each of them publishes of what it sent. A process that is
/// started again counts from 0; the sums go on.
class LiveLinks {
 public:
  static constexpr std::size_t kMost = 1000;

  /// Takes the list `sent` of a process's status: [operation, peer, messages, payload bytes] each, all sums so far.
  void update(const std::string& from, double time_s, const Json& sent);
  /// A list with an entry per link, those with the most bytes if there are more than kMost; null if nothing is known.
  Json json() const;

 private:
  using Key = std::tuple<std::string, std::string, std::string>;  ///< from, to, operation
  struct Count {
    std::uint64_t before = 0;  ///< of the process's predecessors
    std::uint64_t now = 0;
    std::uint64_t total() const { return before + now; }
    void set(std::uint64_t value) {
      if (value < now) before += now;
      now = value;
    }
  };
  struct Link {
    Count bytes;
    Count messages;
    double bytes_per_second = 0;
  };

  bool known_ = false;
  std::map<Key, Link> links_;
  std::map<std::string, double> times_;  ///< of the last status, by process
};

}  // namespace psring::view
