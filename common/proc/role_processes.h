#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <vector>

#include <psring/common/net/frame.h>

namespace psring::net {

/// The processes of a job's roles, by the reports of their agents: which run, which were ordered to end, and which are
/// to be started. A place is the role and rank that a process is started with. A pure state machine, a part of
/// Coordinator.
///
/// A place that is started again passes these states: running -> ending (if the process still ran) -> wanted ->
/// running.
class RoleProcesses {
 public:
  enum class Exit : std::uint8_t {
    expected,    ///< the process had the order to end
    unexpected,  ///< the process ended by itself
    repeated,    ///< the exit was reported before
  };

  bool running(Peer place) const { return running_.contains(place); }
  bool ending(Peer place) const { return ending_.contains(place); }
  bool wanted(Peer place) const { return wanted_.contains(place); }
  bool any_wanted() const { return !wanted_.empty(); }
  const std::set<Peer>& running() const { return running_; }
  const std::set<Peer>& ending() const { return ending_; }
  /// Is this the process that ended last at the place?
  bool has_ended(Peer place, std::uint32_t pid) const;

  /// The processes of these places were started.
  void started(const std::vector<Peer>& places) { running_.insert(places.begin(), places.end()); }
  /// The process has to end. Returns true if it runs, so that its agent needs the order.
  bool end(Peer place);
  /// The place needs a process: `start` returns it once the previous process has ended.
  void want(Peer place) { wanted_.insert(place); }
  /// The job continues without the place.
  void give_up(Peer place) { wanted_.erase(place); }
  /// The process is gone together with its host.
  void forget(Peer place) { running_.erase(place); }
  /// An agent reported an exit. `absent`: the process had the order to end, but did not run any more.
  Exit exited(Peer place, std::uint32_t pid, bool absent);
  /// Returns the wanted places that can be started now, and counts them as running: their previous processes have
  /// ended, and `may_start` allows them.
  std::set<Peer> start(const std::function<bool(Peer)>& may_start);

 private:
  std::set<Peer> running_;
  std::set<Peer> ending_;
  std::set<Peer> wanted_;
  std::map<Peer, std::uint32_t> ended_;  ///< the process number of the process that ended last, by place
};

}  // namespace psring::net
