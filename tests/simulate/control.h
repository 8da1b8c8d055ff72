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
#include <psring/common/proc/coordinator.h>
#include <psring/common/proc/job.h>

namespace psring::test {

/// Ends a role whose process has died. It is no Error, so that nobody takes it for a peer's loss.
struct Died {};

/// The coordinator of a simulated job, and the agent that starts its roles and tells how they end. The state machine is
/// net::Coordinator; its messages arrive, in order and none of them lost, after a delay. Belongs to whoever runs.
class Control {
 public:
  struct Delays {
    Nanoseconds message{0};  ///< of one, each way
    Nanoseconds notice{0};   ///< from a process's end until its agent knows: longer than a link's delay
  };

  /// `place`: the coordinator's on the network. `whole`: every worker has all that the job needs to go on.
  Control(net::SimulatedNetwork& network, const std::vector<net::Peer>& peers, std::size_t place, const JobOptions& job,
          Delays delays);

  /// The coordinator's body: returns with the job.
  void run();
  bool ended() const { return ended_; }
  const net::JobResult& result() const { return coordinator_.result(); }

  // The agent's side, for the thread that runs a place.

  /// Waits until the role is to be started; false where the job ends first.
  bool await_start(std::size_t place);
  /// Its process has ended; by a signal, where that is not 0. False where none ran, or it was to be ended.
  bool exited(std::size_t place, int status, int signal);

  // Counts of the run.
  std::uint64_t begun_anew() const { return begun_anew_; }

  /// A role's link to the coordinator, as net::ControlLink is one for a process: what waits here, and `check`, throw
  /// peer_lost once a new epoch is told of, and Died where the process has.
  class Link {
   public:
    Link(Control& control, std::size_t place);
    ~Link();
    Link(const Link&) = delete;
    Link& operator=(const Link&) = delete;

    net::Peer self() const { return self_; }
    std::uint32_t rank() const { return self_.rank; }
    std::uint32_t epoch() const { return epoch_; }

    /// As Membership has them. Members' addresses are their places.
    std::vector<net::Member> meet(std::uint64_t step, bool has_state);
    void regroup(const Error& error);

    void resumed(std::uint64_t step);
    void report();
    void done();
    void fail(const Error& error);
    void check() const;
    bool finished() const { return finished_; }
    /// `transport`: that of the epoch, as the others may still need to hear what was sent.
    void await_finish(net::Transport& transport);
    /// Messages from the coordinator wake a wait in this transport, too; null: waits are in this link only.
    void wakes(net::Transport* transport);

   private:
    friend class Control;
    net::Peer place_peer() const { return control_.peers_[place_]; }
    void send(net::ControlMessage message);
    void take(net::ControlMessage message);
    void wait(net::Transport& transport, const std::function<bool()>& holds) const;
    bool regroups() const { return told_epoch_ > epoch_; }
    void check_alive() const;

    Control& control_;
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
    bool ends = false;         ///< it has ended, and its agent does not know yet
    bool ended_by_us = false;  ///< the coordinator wanted that
  };

  Moment now() const { return network_.clock().now(); }
  std::size_t place_of(net::Peer peer) const;
  void after(Nanoseconds delay, std::function<void()> what);
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
  std::multimap<Moment, std::function<void()>> due_;  ///< what happens when; in order where at one moment
  std::map<std::string, Link*> links_;
  std::set<std::size_t> to_start_;
  std::map<std::size_t, Process> processes_;
  std::uint64_t begun_anew_ = 0;
  bool ended_ = false;
};

}  // namespace psring::test
