#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <psring/common/base/clock.h>
#include <psring/common/base/error.h>
#include <psring/common/net/key.h>
#include <psring/common/proc/control_messages.h>

namespace psring::net {

/// A member's link to the coordinator. A thread of its own owns the socket and sends heartbeats, whatever the
/// caller does. What ends the job (a lost member, an abort, a silent coordinator, garbage) is latched, the
/// first of it only; `check` throws it, and so does everything below that waits. Safe for several threads.
///
/// Errors begin with who suffers them, "[server] rank 1: ...", but for an agent's: these speak for the job.
class ControlLink {
 public:
  struct Options {
    std::string endpoint;  ///< HOST:PORT of the coordinator
    Role role = Role::worker;
    std::optional<std::uint32_t> rank = {};  ///< a wish
    std::string host_id = {};
    std::string processor = {};  ///< as control::Hello has it
    Nanoseconds join_timeout = std::chrono::seconds(30);
    /// Is a coordinator that is lost before it has answered waited for, too? Afterwards Welcome::patience says so.
    bool patient = false;
    std::function<void()> while_joining = {};  ///< called now and then; what it throws ends joining
    int stop_fd = -1;                          ///< once readable, joining is given up as timed out; -1: none
    bool asks = true;                          ///< of a worker: it calls may_begin
  };

  /// Joins the job. Throws unauthorised where the coordinator does not hold the same key, timeout where none
  /// answers, usage where the endpoint is none, and what the coordinator says where it refuses: all of them name the
  /// endpoint.
  ControlLink(Options options, const JobKey& key, const Clock& clock);
  /// Says goodbye after all that was given to send, waiting at most a second for the socket to take it.
  ~ControlLink();

  /// Its duty's; another may come with the members of a new epoch.
  std::uint32_t rank() const;
  const std::string& job() const;  ///< JSON

  /// How it is reached in this epoch, the step that it has come to, and whether it has state from which the job can go
  /// on.
  void ready(Addresses addresses, std::uint64_t step = 0, bool has_state = false);
  /// All servers and workers, once all are ready. Throws timeout.
  std::vector<Member> members(Moment deadline) const;

  /// Of the membership: it ends with the loss of a role that the job goes on without. From then on, all that waits here
  /// and `check` throw peer_lost, until `await_epoch` has entered the next.
  std::uint32_t epoch() const;
  /// Throws timeout where there is none by then, and the latched error.
  void await_epoch(Moment deadline);
  /// Of a worker: it goes on with this step.
  void resumed(std::uint64_t step);
  /// Nothing goes on here, and the coordinator may not know why.
  void stuck(const Error& error);

  /// These never wait. `append` adds to a file of the run folder, in pieces of kMaxAppendBytes.
  void append(const std::string& file, std::span<const std::byte> bytes);
  void report(std::string json);
  void progress(std::string text);
  void fail(const Error& error);  ///< a fatal error of our own: the job ends with it, unless another was first
  /// A worker has trained to the end, or only as far as `may_begin` let it; `step` is the one that it would do next.
  void done(std::uint64_t step = 0, bool stopped = false);

  /// This process got a signal: the job is to end after the step under way, or at once. Never waits.
  void interrupt(int signal, bool at_once = false);
  /// A worker asks before each step; false: it is to end before this one. While the job's workers are asked where to
  /// end, this waits, for as long as a message takes; throws the latched error.
  bool may_begin(std::uint64_t step);
  /// How the job ended, where a signal did it: once it is done, finished or failed.
  control::Interruption interrupted() const;
  /// Whose log says more of what the job failed with; the coordinator: nobody's.
  Peer culprit() const;

  /// Returns when the coordinator has handled (and written) all that was sent before: call it before the
  /// process exits. Throws timeout, and peer_lost where the coordinator has gone; an abort is no hindrance.
  void flush(Moment deadline);

  void check() const;   ///< throws the latched error
  bool failed() const;  ///< is there one?
  /// To a server: the workers are done. To a worker or an agent: the job has ended well.
  bool finished() const;
  void await_finish() const;  ///< returns once finished(); throws the latched error
  /// `changed` is called by the link's thread whenever check, finished, members or next_order may have
  /// a new answer, and once by the caller here, so that nothing is missed. After `on_change({})` returns, no
  /// call is under way. It must not call the link's on_change.
  void on_change(std::function<void()> changed);

  /// What to add to this process's clock to get the coordinator's: measured by the heartbeat with the
  /// shortest way there and back, and off by at most half of that.
  Nanoseconds clock_offset() const;

  /// For agents. What the coordinator wants: roles started, or killed, or a line shown to people.
  struct Order {
    enum class Kind : std::uint8_t { start, end, tell } kind = Kind::start;
    std::vector<Peer> roles;
    std::string text;
  };
  /// The next one; nothing where there is none yet, and the deadline has passed. Throws timeout after waiting in vain.
  std::optional<Order> next_order(Moment deadline);
  void role_exited(control::RoleExited exit);
  /// Nothing has come from the coordinator for longer than it may be silent, and it is waited for (Welcome::patience).
  bool silent() const;
  /// As the coordinator says. REQUIRES: joined.
  Nanoseconds heartbeat_timeout() const;
  bool patient() const;  ///< is a coordinator that is lost waited for?

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace psring::net
