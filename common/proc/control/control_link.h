#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <psring/common/base/byte_ledger.h>
#include <psring/common/base/clock.h>
#include <psring/common/base/text/error.h>
#include <psring/common/net/key.h>
#include <psring/common/proc/agent_order.h>
#include <psring/common/proc/control/control_messages.h>
#include <psring/common/proc/stop.h>

namespace psring::net {

/// A member's link to the coordinator. A thread of its own owns the socket and sends heartbeats, whatever the caller
/// does. The first error that ends the job (a lost member, an abort, a silent coordinator, garbage) is latched: `check`
/// throws it, and so do all calls that wait. Safe for several threads.
///
/// Errors begin with the member, "[server] rank 1: ...". An agent's errors do not: they speak for the job.
class ControlLink {
 public:
  struct Options {
    std::string endpoint;  ///< HOST:PORT of the coordinator
    Role role = Role::worker;
    std::optional<std::uint32_t> rank = {};  ///< the rank to ask for; none: any
    std::string host_id = {};
    std::string processor = {};  ///< see control::Hello
    Nanoseconds join_timeout = std::chrono::seconds(30);
    /// Waits also for a coordinator that is lost before it has answered. Afterwards Welcome::patience decides.
    bool patient = false;
    std::function<void()> while_joining = {};  ///< called now and then; an exception that it throws ends joining
    /// Called with the reason if this member has to wait before it may join.
    std::function<void(const std::string& reason)> on_wait = {};
    int stop_fd = -1;                   ///< when this is readable, joining ends with a timeout; -1: none
    bool asks = true;                   ///< for a worker: it calls may_begin
    const ByteLedger* bytes = nullptr;  ///< counts the bytes that the member receives; null: none
  };

  /// Joins the job. Throws unauthorised if the coordinator does not hold the same key, timeout if no coordinator
  /// answers, usage if the endpoint has another form, and the coordinator's own error if it refuses. All of them name
  /// the endpoint.
  ControlLink(Options options, const JobKey& key, const Clock& clock);
  /// Ends the link as the destructor does. Afterwards only `check` and the other questions that do not wait may be
  /// asked.
  void leave();
  /// Sends all messages and a goodbye, waiting at most a second for the socket to take them.
  ~ControlLink();

  /// The rank of this member's duty, which may change with the members of a new epoch.
  std::uint32_t rank() const;
  const std::string& job() const;  ///< JSON

  /// Tells how this member is reached in this epoch, which step it has reached, whether it has state from which the
  /// job can continue, and what its files hold (control::Ready).
  void ready(Addresses addresses, std::uint64_t step = 0, bool has_state = false, Addresses files = {});
  /// Waits until all servers and workers are ready, and returns them. Throws timeout.
  std::vector<Member> members(Moment deadline) const;

  /// The membership epoch. It ends with the loss of a role after which the job continues. From then on, all calls that
  /// wait and `check` throw peer_lost, until `await_epoch` has entered the next epoch.
  std::uint32_t epoch() const;
  /// Waits until the next epoch begins, and enters it. Throws timeout, and the latched error.
  void await_epoch(Moment deadline);
  /// For a worker: it continues with this step.
  void resumed(std::uint64_t step);
  /// This member cannot continue in this epoch. The coordinator may not know the cause.
  void stuck(const Error& error);

  // These calls never wait.
  /// Adds to a file of the run folder, in pieces of kMaxAppendBytes.
  void append(const std::string& file, std::span<const std::byte> bytes);
  void report(std::string json);
  /// Sends this member's present activity. At most one status is in flight: others are dropped, except the last.
  void status(std::string json, bool is_last);
  void progress(std::string text);
  /// A fatal error of this member: the job ends with it, unless it has failed already. `decided`: as in
  /// control::Failed.
  void fail(const Error& error, bool decided = false);
  /// For a worker: it has trained to the end, or was stopped by `may_begin`. `step` is the step that it would do next.
  void done(std::uint64_t step = 0, bool stopped = false);
  /// This process got a signal: the job ends after the current step, or at once.
  void interrupt(int signal, bool at_once = false);

  /// For a worker, before each step and each piece of an evaluation: returns false if the worker has to end before it.
  /// While the workers are asked where to end, this call waits, for as long as a message takes. Throws the latched
  /// error.
  bool may_begin(StopPoint point);
  /// Once the job is done, finished or failed: how a signal ended it, if one did.
  control::Interruption interrupted() const;
  /// The role whose log says more about the job's failure; the coordinator: no log does.
  Peer culprit() const;

  /// Waits until the coordinator has handled (and written) all earlier messages; call it before the process exits.
  /// Works after an abort, too. Throws timeout, and peer_lost if the coordinator has gone.
  void flush(Moment deadline);
  /// Called after `fail`: waits until the job has failed for this member. Returns the latched error, which names the
  /// first cause; nothing if there is none at the deadline.
  std::optional<Error> await_failure(Moment deadline) const;

  /// Throws the latched error. A thread that waits for a peer calls this at least every 100 ms; heartbeats then tell
  /// for how long the member has only waited.
  void check() const;
  bool failed() const;  ///< is an error latched?
  /// For a server: the workers are done. For a worker or an agent: the job has ended well.
  bool finished() const;
  /// Waits until finished() is true, at most until the deadline, and returns its value. Throws the latched error. A
  /// worker's links stay open until then, because a link that closes looks like a lost peer to workers that still wait
  /// for others.
  bool await_finish(Moment deadline = Moment::max()) const;
  /// The link's thread calls `changed` when check, finished, members or next_order may have a new answer, and this call
  /// itself calls it once, so that no change is missed. After `on_change({})` has returned, no call is in progress.
  /// `changed` must not call on_change of this link.
  void on_change(std::function<void()> changed);

  /// The offset to add to this process's clock to get the coordinator's; see ClockOffset.
  Nanoseconds clock_offset() const;

  // For agents.
  using Order = AgentOrder;
  /// The next order of the coordinator. Throws timeout if none arrives in time; returns nothing if there is none and
  /// the deadline had passed before the call.
  std::optional<Order> next_order(Moment deadline);
  void role_exited(control::RoleExited exit);
  /// Is the coordinator silent for longer than the heartbeat timeout, while this member waits for its return?
  bool silent() const;
  /// Is the coordinator lost, without a word why?
  bool lost() const;

  Nanoseconds heartbeat_timeout() const;  ///< as the coordinator has told
  bool patient() const;                   ///< does this member wait for a lost coordinator?
  bool more() const;                      ///< does another job follow at the endpoint?

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace psring::net
