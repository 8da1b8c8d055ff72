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
#include <psring/common/net/control_messages.h>
#include <psring/common/net/key.h>

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
    std::uint32_t incarnation = 0;
    Nanoseconds join_timeout = std::chrono::seconds(30);
    int stop_fd = -1;  ///< once readable, joining is given up as timed out; -1: none
  };

  /// Joins the job. Throws unauthorised where the coordinator does not hold the same key, timeout where none
  /// answers, usage where the endpoint is none, and what the coordinator says where it refuses: all of them name the
  /// endpoint.
  ControlLink(Options options, const JobKey& key, const Clock& clock);
  /// Says goodbye after all that was given to send, waiting at most a second for the socket to take it.
  ~ControlLink();

  std::uint32_t rank() const;
  const std::string& job() const;  ///< JSON

  void ready(Addresses addresses);
  /// All servers and workers, once all are ready. Throws timeout.
  std::vector<Member> members(Moment deadline) const;

  /// These never wait. `append` adds to a file of the run folder, in pieces of kMaxAppendBytes.
  void append(const std::string& file, std::span<const std::byte> bytes);
  void report(std::string json);
  void progress(std::string text);
  void fail(const Error& error);  ///< a fatal error of our own: the job ends with it, unless another was first
  void done();                    ///< a worker has trained to the end

  /// Returns when the coordinator has handled (and written) all that was sent before: call it before the
  /// process exits. Throws timeout, and peer_lost where the coordinator has gone; an abort is no hindrance.
  void flush(Moment deadline);

  void check() const;  ///< throws the latched error
  /// To a server: the workers are done. To a worker or an agent: the job has ended well.
  bool finished() const;
  void await_finish() const;  ///< returns once finished(); throws the latched error
  /// `changed` is called by the link's thread whenever check, finished, members or try_start_roles may have
  /// a new answer, and once by the caller here, so that nothing is missed. After `on_change({})` returns, no
  /// call is under way. It must not call the link's on_change.
  void on_change(std::function<void()> changed);

  /// What to add to this process's clock to get the coordinator's: measured by the heartbeat with the
  /// shortest way there and back, and off by at most half of that.
  Nanoseconds clock_offset() const;

  /// For agents. The roles to start, once; nothing where they have not come yet.
  std::optional<std::vector<Peer>> try_start_roles();
  std::optional<std::vector<Peer>> next_start_roles(Moment deadline);  ///< waits for them
  void role_exited(control::RoleExited exit);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace psring::net
