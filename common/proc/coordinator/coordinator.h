#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include <psring/common/base/clock.h>
#include <psring/common/base/text/error.h>
#include <psring/common/proc/control/control_messages.h>
#include <psring/common/proc/job_plan.h>
#include <psring/common/proc/role_processes.h>
#include <psring/common/proc/stop.h>

namespace psring::net {

/// Rendezvous and life of one job, as a pure state machine: messages and time in, messages and events out.
///
/// Members join and get their ranks; agents are told which roles to start. Once all servers and workers are ready, each
/// of them gets the list of all. Then: all workers are done -> Finish to the servers; all roles have reported -> Finish
/// to the workers; all of them have exited -> Finish to the agents. Any error before the last of these fails the job:
/// the first cause is kept, and Abort goes to everybody.
///
/// A role that reports the loss of a peer reports a symptom: soon the agent of that peer may report how the peer ended,
/// or the peer's silence may show. So the symptom becomes the cause only if no better cause arrives within
/// `cause_grace`, and all other members are heard after that: then a link was lost, and no process.
///
/// If restarts are allowed, the loss of a server or worker does not fail the job, but ends the membership epoch: the
/// role is started again, and the others are told to regroup, and are waited for as at the beginning. A role that keeps
/// the job's state says so when it is ready; if nobody keeps a part of the state, all roles are ended and start from
/// the last checkpoint. A replica takes the place of a server whose state was lost. A role has a place, the rank with
/// which its agent started it, and a duty, the rank that it has in this epoch; duties may change between epochs.
///
/// An interrupted job ends between two steps, the same for all workers (see stop.h); then the workers are done, and the
/// rest is as at a job's end. The job fails at once instead before the first step, if a worker does not ask before its
/// steps, or if a member wants it.
///
/// Without agents, no message reports how a role ended: its silence shows the loss, or the end of its process if the
/// caller sees it. A process that is started again, by hand or by the program that started the role, asks for the place
/// of the lost process. It is told at once which process holds the place, and waits until the holder counts as lost, or
/// is refused when the holder's next message arrives.
///
/// A worker that cannot be started again, or whose host was lost, is given up if the job may continue with fewer
/// workers: the others get ranks from 0, in the order of their places.
///
/// Belongs to one thread. The members are implemented in coordinator.cpp and, by topic, in coordinator_joining.cpp,
/// coordinator_recovery.cpp, coordinator_return.cpp, coordinator_silence.cpp and coordinator_stop.cpp.
class Coordinator {
 public:
  using Connection = std::string;  ///< the name of a link, any bytes

  struct Outgoing {
    Connection to;
    ControlMessage message;
  };
  /// A member's request to write or show something.
  struct Event {
    Peer from;
    /// The member's process, for an append: "worker-1-4711".
    std::string process;
    std::variant<control::Append, control::Report, control::Status, control::Progress, control::Notice> what;
  };
  /// A process that has joined, and whose end no agent would report: the caller calls `process_ended` if it can notice
  /// the end.
  struct Joined {
    Connection connection;
    std::string host_id;
    std::uint64_t pid_namespace = 0;
    std::uint32_t pid = 0;
  };
  struct Actions {
    std::vector<Outgoing> messages;
    std::vector<Event> events;
    std::vector<Joined> joined;
  };

  /// Throws usage if the plan is wrong; see check_plan.
  Coordinator(JobPlan plan, Moment now);

  Actions receive(const Connection& from, ControlMessage message, Moment now);
  /// Bytes on this connection could not be decoded.
  Actions receive_garbage(const Connection& from, const Error& error, Moment now);
  /// The process of this connection has ended. Its messages may still arrive for `cause_grace`.
  Actions process_ended(const Connection& connection, Moment now);
  /// The caller calls this when no more messages have arrived, and at next_tick() at the latest. A call that is late by
  /// more than half the heartbeat timeout shows that this process itself stood still: the members' silence is then
  /// counted anew.
  Actions tick(Moment now);
  Moment next_tick() const { return next_tick_; }
  /// This process stood still (SIGSTOP) for `late`: that time does not count as silence, and postpones deadlines.
  void stood_still(Nanoseconds late, Moment now);
  /// This process got a signal: the job ends after the current step, or at the second request (StopRequests) at once.
  Actions interrupt(int signal, Moment now);
  /// The job fails for a reason of the caller.
  Actions abort(const Error& cause, Moment now);

  bool ended() const { return phase_ == Phase::ended; }
  const JobResult& result() const { return result_; }

 private:
  enum class Phase : std::uint8_t { joining, running, finishing, leaving, closing, ended };
  struct State {
    Member member;  ///< member.peer is the duty
    Connection connection;
    std::string processor;
    Moment heard;             ///< when the last message arrived
    Nanoseconds idle{};       ///< for how long the member has only waited, by its last heartbeat
    std::uint32_t epoch = 0;  ///< the latest epoch that was announced to the member
    std::uint32_t life = 0;   ///< how many processes had the place before
    std::uint64_t step = 0;   ///< the step that the member had reached when it got ready
    bool has_state = false;
    Addresses files;       ///< control::Ready
    bool running = false;  ///< the member came back to a second coordinator, and has the list of its epoch's members
    bool repeats = false;  ///< the member came back, and repeats messages that may have been lost
    bool ready = false;
    bool done = false;
    std::uint64_t came_to = 0;    ///< the step that the member would do next, once it is done
    std::int32_t stopped_by = 0;  ///< the signal that stopped the member; 0: it trained to the end
    bool reported = false;
    bool failed = false;  ///< the member has reported why it ends
    bool asks = true;     ///< the worker asks before each step
    bool said_bye = false;
    bool exited = false;  ///< the process has ended, as its agent has reported, or the caller some time ago
    std::optional<Moment> ended = {};  ///< when the caller reported the end of the process
  };
  /// A loss that a role has reported, and whose cause is not known yet.
  struct Symptom {
    Error error;
    Peer place;     ///< of the role that reported it
    Moment graced;  ///< when the grace ends: a member that is heard later is not the lost one
  };
  /// Why a process that asks for a place may not join yet.
  enum class WaitsFor : std::uint8_t {
    nothing,
    holder,   ///< the process that has the place lives, or does not count as lost yet
    decision  ///< it is open from which state the job continues
  };
  struct Waiting {
    Connection from;
    control::Hello hello;
    WaitsFor what = WaitsFor::nothing;  ///< as the process was told
  };

  void on(State& from, control::Ready&& message);
  void on(State& from, const control::Stuck& message);
  void on(State& from, const control::Resumed& message);
  void on(State& from, const control::Heartbeat& message);
  void on(State& from, const control::RoleExited& message);
  void on(State& from, const control::Failed& message);
  void on(State& from, control::Report&& message);
  void on(State& from, control::Status&& message);
  void on(State& from, control::Append&& message);
  void on(State& from, control::Progress&& message);
  void on(State& from, const control::Done& message);
  void on(State& from, const control::Bye& message);
  void on(State& from, const control::Interrupt& message);
  void on(State& from, const control::Paused& message);
  void on(State& from, const auto& message);  ///< messages that only the coordinator may send

  void take_exit(const control::RoleExited& message);
  void lose(Peer place, ErrorKind kind, std::string text);
  /// A job that a signal was to end, and whose last step a loss has kept from ending, counts as interrupted.
  void fail_job(ErrorKind kind, std::string text, Peer culprit = {Role::coordinator, 0});
  void suspect(const State& from, const std::string& text);
  void check_ends(Moment now);
  void check_silence(Moment now);
  bool symptom_is_open() const;
  bool roles_live(Peer agent) const;
  bool is_silent(const State& state) const { return now_ - state.heard >= plan_.heartbeat_timeout; }
  void check_deadline(Moment now);
  void advance();
  void enter(Phase phase, Moment deadline);
  void begin_call(Moment now) { now_ = now; }
  Actions finish_call();

  // Queries.
  static bool is_role(Role role) { return role == Role::server || role == Role::worker; }
  std::string process_of(Peer place, const State& state) const;
  std::uint32_t expected(Role role) const;
  bool is_complete(const State& state) const;
  bool has_left(const State& state) const;
  bool all_roles(bool (Coordinator::*holds)(const State&) const) const;
  std::string_view phase_text() const;
  std::vector<Peer> places() const;
  State* find(const Connection& connection);

  // Messages.
  void send(const State& to, ControlMessage message);
  void broadcast(const ControlMessage& message, auto&& is_receiver);
  template <class Order>
  void send_to_agents(const std::set<Peer>& places);
  void send_start(const std::set<Peer>& places);
  void send_end(const std::set<Peer>& places);
  void record(std::string line);
  void notice(std::string text);

  // coordinator_joining.cpp
  void join(const Connection& from, const control::Hello& message);
  bool waits(const Connection& from, const control::Hello& message);
  WaitsFor awaited_at(Peer place) const;
  std::string text_of(WaitsFor what, Peer place) const;
  void refuse_waiting(Peer place);
  void join_waiting();
  std::string describe_holder(Peer place) const;
  std::string missing_servers() const;
  void tell_missing();
  std::optional<control::Refused> objection(const control::Hello& message) const;
  void welcome(State& state, Peer place, const Connection& from);
  void refuse(const Connection& to, ErrorKind kind, std::string text);
  std::optional<std::uint32_t> free_rank(const control::Hello& message) const;
  bool still_ends(Peer place) const;
  std::string missing() const;
  control::Members list_of_members() const;
  void begin_epoch();
  std::string difference_of_files() const;
  void compare_processors();
  std::string difference_of_builds(const control::Hello& message) const;
  void compare_builds(const control::Hello& message, const Member& member);

  // coordinator_return.cpp
  void come_back(const Connection& from, const control::Hello& message);
  void repeat_messages(State& state, const control::Hello& message);
  void await_returns();
  void end_returns();
  void add_ended(Peer place, std::uint32_t pid);
  static void mark_ended(State& state);

  // coordinator_recovery.cpp
  bool continue_without(Peer place, ErrorKind kind, std::string& text);
  bool continue_without_host(Peer agent, const std::string& text);
  bool continue_with_present();
  bool finish_without(Peer place);
  bool may_give_up(const std::set<Peer>& places) const;
  void give_up(const std::set<Peer>& places);
  void recover(const std::string& text);
  void drop(Peer place);
  void remove(Peer place);
  void remove_colocated_servers();
  void start_wanted();
  bool may_start(Peer place) const;
  void regroup(const std::string& text);
  bool survivors_are_ready() const;
  bool beginning_exists() const;
  bool state_is_kept() const;
  void settle_epoch();
  void assign_servers();
  void number_workers();
  void begin_anew();
  void end_processes(const std::string& text);
  void note_loss(const std::string& text);

  // coordinator_stop.cpp
  void interrupt(std::int32_t signal, bool at_once);
  bool can_stop() const;
  void ask_where_to_stop();
  void tell_where_to_stop();
  void end_stuck_step();
  control::Interruption interruption() const;

  JobPlan plan_;  ///< constant after construction, except `job`, which changes when the job begins anew

  // The state of the job.
  Phase phase_ = Phase::joining;
  Moment now_;       ///< the time of the current call
  Moment deadline_;  ///< the end of the phase
  Moment next_tick_;
  std::optional<Symptom> symptom_;
  std::map<Peer, State> members_;  ///< by place
  std::map<Connection, Peer> connections_;
  RoleProcesses processes_;
  Actions actions_;  ///< of the current call
  JobResult result_;

  // Recovery.
  std::uint32_t epoch_ = 0;     ///< the membership epoch
  std::uint32_t restarts_ = 0;  ///< restarts that were used
  bool settled_ = true;         ///< it is known which state this epoch continues from
  bool anew_ = false;           ///< this epoch continues from a checkpoint, with new roles
  bool returning_ = false;      ///< the members of the previous coordinator are coming back
  bool begun_ = false;          ///< a member that came back had the list of its epoch's members
  /// Exits that agents reported while members come back, by role: of the role's process, or of an earlier one, whose
  /// exit the previous coordinator has answered with another start.
  std::map<Peer, control::RoleExited> early_exits_;
  std::optional<Moment> lost_at_;             ///< the first loss from which the job has not recovered yet
  std::set<Peer> given_up_;                   ///< places of workers, and agents, without which the job continues
  std::set<Peer> resumed_;                    ///< workers that have resumed in this epoch
  std::map<Connection, std::string> former_;  ///< lost processes, whose appends are still written
  std::map<Peer, Waiting> waiting_;           ///< by the place; without agents only
  Moment told_missing_;                       ///< when a member joined, or the missing members were printed
  std::map<Peer, std::uint32_t> joined_;      ///< how many processes have joined, by place
  std::string processors_;                    ///< the last notice of different processors
  bool told_builds_ = false;                  ///< the difference of builds was printed

  // An early end.
  std::int32_t interrupt_signal_ = 0;  ///< the signal that ends the job early; 0: none
  StopRequests own_signals_;           ///< the signals that this process got
  std::optional<StopVote> stop_vote_;  ///< of this epoch
};

}  // namespace psring::net
