#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <psring/common/base/clock.h>
#include <psring/ring/group_options.h>
#include <psring/ring/hier/inner_groups.h>
#include <psring/ring/hier/task.h>

namespace psring::ring {

/// Starts, advances and waits for the calls on a hierarchical group. The stages of successive collectives overlap; each
/// kind of stage enters its inner group in the order of the calls.
class HierProgress {
 public:
  /// `clock`: of waits; null: the system's.
  HierProgress(const Hierarchy& hierarchy, const InnerGroups& inner, GroupOptions options, const Clock* clock);

  Work start_collective(const Request& request);
  Work start_message(const Request& request);

  /// Advances everything in flight as far as possible without waiting.
  void advance();
  /// Waits in the inner group where the next event is expected; every 20 ms it checks whether the peers live. Throws
  /// peer_lost or timeout.
  void wait_for(const HierTask& task);

  /// The bytes that all inner groups have moved.
  Moved moved() const;

 private:
  /// Collectives by their numbers: those before `down` have entered the stage down, and so on.
  struct Reached {
    std::uint64_t called = 0;
    std::uint64_t down = 0;
    std::uint64_t between = 0;
    std::uint64_t up = 0;
    std::uint64_t finished = 0;
    friend bool operator==(const Reached&, const Reached&) = default;
  };

  HierCollective& at(std::uint64_t number) { return *queue_[number - reached_.finished]; }
  bool advance_all();
  void rest(const HierTask& task, std::uint32_t seen);
  void check_peers(Moment since);
  [[noreturn]] void end(const Error& error, const HierTask* waiting = nullptr);
  std::string doing(const HierTask& task) const;

  const Hierarchy& hierarchy_;
  const InnerGroups& inner_;
  const GroupOptions options_;
  const SystemClock system_clock_;
  const Clock& clock_;
  Reached reached_;
  std::deque<std::shared_ptr<HierCollective>> queue_;  ///< from the first that is not finished; shared with handles
  std::deque<std::shared_ptr<HierMessage>> messages_;
  std::vector<std::uint64_t> sent_;      ///< messages to each rank
  std::vector<std::uint64_t> received_;  ///< messages from each rank
  std::optional<Error> broken_;
};

}  // namespace psring::ring
