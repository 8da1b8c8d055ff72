#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <psring/common/net/sim/simulated.h>
#include <psring/common/proc/coordinator/coordinator.h>
#include <psring/common/proc/job.h>

namespace psring::view {

/// Thrown in a role whose process has died. Not an Error, so that no code takes it for the loss of a peer.
struct Died {};

/// The coordinator of a simulated job, and the agent that starts the job's roles and reports how they end. The state
/// machine is net::Coordinator; its messages arrive in order after a delay, and none is lost. Belongs to the thread of
/// the simulated peer that runs.
class SimulatedControl {
 public:
  struct Delays {
    Nanoseconds message{0};  ///< of a message, each way
    Nanoseconds notice{0};   ///< from a process's end until its agent knows: longer than a link's delay
  };

  /// `place`: the coordinator's place on the network.
  SimulatedControl(net::SimulatedNetwork& network, const std::vector<net::Peer>& peers, std::size_t place,
                   const JobOptions& job, Delays delays);

  /// The coordinator's body: returns with the job.
  void run();
  bool ended() const { return ended_; }
  const net::JobResult& result() const { return coordinator_.result(); }

  // The agent's side, for the thread that runs a place.

  /// Waits until the role is to be started. Returns false if the job ends first.
  bool await_start(std::size_t place);
  /// The role's process has ended; `signal` 0: by itself. Returns false if no process ran, or the coordinator ended it.
  bool exited(std::size_t place, int status, int signal);

  // Counts of the run.
  std::uint64_t begun_anew() const { return begun_anew_; }

  /// A role's link to the coordinator, like the net::ControlLink of a process. Waits and `check` throw peer_lost once
  /// the coordinator has announced a new epoch, and Died if the process has died.
  class Link {
   public:
    Link(SimulatedControl& control, std::size_t place);
    ~Link();
    Link(const Link&) = delete;
    Link& operator=(const Link&) = delete;

    net::Peer self() const { return self_; }
    std::uint32_t rank() const { return self_.rank; }
    std::uint32_t epoch() const { return epoch_; }

    /// Like Membership's. The address of a member is its place.
    std::vector<net::Member> meet(std::uint64_t step, bool has_state);
    void regroup(const Error& error);

    void resumed(std::uint64_t step);
    void report();
    void done();
    void fail(const Error& error);
    void check() const;
    bool finished() const { return finished_; }
    /// `transport`: the epoch's, because other members may still wait for frames that it sends again.
    void await_finish(net::Transport& transport);
    /// Messages from the coordinator wake a wait in this transport, too; null: only waits in this link.
    void wakes(net::Transport* transport);

   private:
    friend class SimulatedControl;
    net::Peer place_peer() const { return control_.peers_[place_]; }
    void send(net::ControlMessage message);
    void take(net::ControlMessage message);
    void wait(net::Transport& transport, const std::function<bool()>& holds) const;
    bool regroups() const { return told_epoch_ > epoch_; }
    void check_alive() const;

    SimulatedControl& control_;
    const std::size_t place_;
    const std::string connection_;
    net::Transport* woken_;
    net::Peer self_;
    bool welcome_ = false;
    std::uint32_t epoch_ = 0;
    std::uint32_t told_epoch_ = 0;
    std::string regroup_text_;
    std::optional<std::vector<net::Member>> members_;
    std::uint32_t members_epoch_ = 0;
    std::optional<Error> error_;
    bool finished_ = false;
  };

 private:
  struct Process {
    std::uint32_t pid = 0;
    bool ends = false;         ///< the process has ended, and its agent does not know yet
    bool ended_by_us = false;  ///< the coordinator ended it
  };

  Moment now() const { return network_.clock().now(); }
  std::size_t place_of(net::Peer peer) const;
  void after(Nanoseconds delay, std::function<void()> action);
  void to_coordinator(const std::string& connection, net::ControlMessage message);
  void carry_out(net::Coordinator::Actions actions);
  void deliver(const net::Coordinator::Outgoing& outgoing);
  void to_agent(const net::ControlMessage& message);
  void end(net::Peer role);
  std::uint32_t pid(std::size_t place) const { return network_.incarnation(place) + 1; }

  net::SimulatedNetwork& network_;
  const std::vector<net::Peer> peers_;
  const std::size_t place_;
  const Delays delays_;
  net::Coordinator coordinator_;
  std::multimap<Moment, std::function<void()>> due_;  ///< actions by their time; in order if the times are equal
  std::map<std::string, Link*> links_;
  std::set<std::size_t> to_start_;
  std::map<std::size_t, Process> processes_;
  std::uint64_t begun_anew_ = 0;
  bool ended_ = false;
};

}  // namespace psring::view
