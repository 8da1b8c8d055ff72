#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <psring/common/base/clock.h>
#include <psring/common/base/text/error.h>
#include <psring/common/proc/agent_order.h>
#include <psring/common/proc/control/clock_offset.h>
#include <psring/common/proc/control/control_messages.h>
#include <psring/common/proc/control/control_outbox.h>
#include <psring/common/proc/coordinator/coordinator_watch.h>
#include <psring/common/proc/idle_watch.h>
#include <psring/common/proc/stop.h>

namespace psring::net {

/// A member's view of its job, as a pure state machine: the coordinator's messages and time in, messages out.
/// ControlLink runs it over a socket; see there for the contract of the calls that have the same name.
///
/// Two errors are latched, the first of each: `error` ends the job for the caller; `gone` is the reason why no more
/// messages will be received, which is no error for a caller whose job has ended.
class ControlMember {
 public:
  struct Options {
    control::Hello hello;        ///< introduces the member; the first message to send
    std::string endpoint;        ///< names the coordinator in errors
    Nanoseconds join_timeout{};  ///< the time in which the coordinator has to answer
    bool patient = false;        ///< a coordinator that is lost before it has answered may come back
  };
  ControlMember(Options options, Moment now);

  // Questions of the caller.
  bool joined() const { return welcome_.has_value(); }
  /// Why the member may not join yet, once for each reason that the coordinator tells; nothing if there is no new one.
  std::optional<std::string> take_reason_to_wait() { return std::exchange(new_reason_, std::nullopt); }
  bool has_reason_to_wait() const { return new_reason_.has_value(); }
  const control::Welcome& welcome() const { return *welcome_; }  ///< REQUIRES: joined(); constant from then on
  Peer self() const { return self_; }
  std::uint32_t epoch() const { return epoch_; }
  const std::optional<Error>& error() const { return error_; }
  /// Is the loss of the coordinator the error?
  bool lost() const { return lost_; }
  const std::optional<Error>& gone() const { return gone_; }
  /// Has the epoch, or the job, ended for the caller?
  bool broken() const { return error_ || told_epoch_ > epoch_; }
  void throw_if_broken() const;
  const std::optional<std::vector<Member>>& members() const { return members_; }
  bool finished() const { return finished_; }
  /// Has the job ended, so that the coordinator is no longer needed? Servers still report then, all others did before.
  bool complete() const { return finished_ && role() != Role::server; }
  const control::Interruption& interrupted() const { return interrupted_; }
  Peer culprit() const { return culprit_; }
  Nanoseconds clock_offset() const { return offset_.value(); }
  /// The text with which the caller's errors begin: "[server] rank 1: "; "" for an agent, whose errors are errors of
  /// the job.
  std::string prefix() const;

  // News from the caller.
  void send(const ControlMessage& message) { outbox_.send(encode_control(message)); }
  void send_standing(const ControlMessage& message) { outbox_.send_standing(encode_control(message)); }
  void send_surely(const ControlMessage& message) { outbox_.send_surely(encode_control(message)); }
  void append(const std::string& file, std::span<const std::byte> bytes);
  /// Drops the status if the coordinator has not answered since the previous one, unless it is the last.
  void status(std::string json, bool is_last);
  /// Tells every coordinator of the epoch: a coordinator that is lost before all workers have resumed leaves the end of
  /// the recovery to the next.
  void resumed(std::uint64_t step) { send_standing(control::Resumed{epoch_, step}); }
  void done(std::uint64_t step, bool stopped);
  StepGate::Turn ask(StopPoint point) { return gate_.ask(point); }
  /// Enters the latest epoch that the coordinator has announced.
  void enter_epoch();
  /// The next order; nothing if there is none.
  std::optional<AgentOrder> take_order();
  bool has_order() const { return !orders_.empty(); }

  // News from the link.
  /// Takes the bytes of a message. Returns true if the caller's questions may have new answers.
  bool receive(std::span<const std::byte> bytes, Moment now);
  /// Latches `gone`, and `error` unless the job has ended well.
  void lose(ErrorKind kind, const std::string& text);
  /// The connection is lost. Returns true if the link connects again; otherwise the coordinator is lost.
  bool lose_connection(const std::string& text, Moment now);
  /// A new connection begins: says which member this is and where it was, and repeats messages.
  void reconnect();
  /// Looks at the time. `changed`: the caller's questions may have new answers; `reconnect`: the link connects again.
  struct Look {
    bool changed = false;
    bool reconnect = false;
  };
  Look look(Moment now);
  /// The messages to send now, with a heartbeat if one is due. `received`: by the caller's data links, in bytes.
  std::vector<ControlOutbox::Bytes> take_outgoing(Moment now, std::uint64_t received = 0);
  /// The caller's thread waits for a peer.
  void wait(Moment now) { idle_.wait(now); }

  CoordinatorWatch& watch() { return watch_; }
  const CoordinatorWatch& watch() const { return watch_; }
  ControlOutbox& outbox() { return outbox_; }
  const ControlOutbox& outbox() const { return outbox_; }

 private:
  bool on(control::Welcome&& message, Moment now);
  bool on(control::Refused&& message, Moment now);
  bool on(control::Wait&& message, Moment now);
  bool on(control::Members&& message, Moment now);
  bool on(control::Regroup&& message, Moment now);
  bool on(control::StartRoles&& message, Moment now);
  bool on(control::EndRoles&& message, Moment now);
  bool on(control::Notice&& message, Moment now);
  bool on(control::Lost&& message, Moment now);
  bool on(control::Abort&& message, Moment now);
  bool on(control::Finish&& message, Moment now);
  bool on(control::Pause&& message, Moment now);
  bool on(control::StopBefore&& message, Moment now);
  bool on(control::HeartbeatAck&& message, Moment now);
  bool on(auto&& message, Moment now);  ///< messages that only members may send
  void latch(ErrorKind kind, const std::string& text);

  Role role() const { return options_.hello.role; }

  const Options options_;  ///< constant after construction

  CoordinatorWatch watch_;
  ControlOutbox outbox_;
  ClockOffset offset_;
  IdleWatch idle_;

  std::optional<control::Welcome> welcome_;
  std::string reason_to_wait_;             ///< the last that the coordinator told; "": none
  std::optional<std::string> new_reason_;  ///< that the caller has not taken
  std::uint32_t epoch_ = 0;                ///< the epoch that the caller is in
  std::uint32_t told_epoch_ = 0;           ///< the latest epoch that the coordinator announced
  std::string regroup_text_;               ///< why the caller's epoch has ended
  Peer self_;                              ///< the duty
  std::optional<std::vector<Member>> members_;
  std::uint32_t members_epoch_ = 0;  ///< the epoch of `members_`
  std::deque<AgentOrder> orders_;
  std::uint64_t appends_ = 0;           ///< the number of the last append
  std::uint64_t status_heartbeat_ = 0;  ///< number of the heartbeat after the last status
  StepGate gate_;                       ///< of the caller's epoch
  std::int32_t stop_signal_ = 0;
  control::Interruption interrupted_;
  Peer culprit_{Role::coordinator, 0};
  bool finished_ = false;
  std::optional<Error> error_;
  bool lost_ = false;
  std::optional<Error> gone_;
};

}  // namespace psring::net
