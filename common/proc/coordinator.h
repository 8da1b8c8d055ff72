#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include <psring/common/base/clock.h>
#include <psring/common/base/error.h>
#include <psring/common/proc/control_messages.h>
#include <psring/common/proc/stop.h>

namespace psring::net {

/// How a job goes on where a server or worker is lost.
struct RecoveryPlan {
  /// Who has all that the others need to go on.
  enum class Keepers : std::uint8_t {
    nobody,   ///< all begin anew
    servers,  ///< each server, or its replica, its part
    workers,  ///< every worker all of it
  };
  struct Anew {
    std::string job;         ///< as JobPlan::job
    std::uint64_t step = 0;  ///< that it begins with
  };

  std::uint32_t max_restarts = 0;  ///< lost processes that are started again
  std::uint32_t min_workers = 0;   ///< with how many the job goes on where more cannot be had; 0: all
  Keepers keepers = Keepers::nobody;
  /// The job with so many workers, as it begins from what was saved last.
  std::function<Anew(std::uint32_t workers)> begin_anew = {};
  /// Can a process that is started now still read what the job (as JobPlan::job) begins from? Null: it reads nothing.
  std::function<bool(const std::string& job)> beginning_exists = {};
  Nanoseconds patience{0};  ///< of members for a coordinator that is lost

  // Of a job's second coordinator, and those after it: its members come back by themselves, and it goes on where the
  // one before it was.
  bool is_second = false;
  std::uint32_t restarts = 0;
  std::set<Peer> given_up = {};  ///< workers' places, and agents

  /// Does a job go on after a loss at all?
  bool possible() const { return max_restarts > 0 || min_workers > 0; }
};

/// Who takes part in a job, what its members are told, and how long they are waited for.
struct JobPlan {
  std::uint32_t workers = 1;
  std::uint32_t servers = 0;  ///< processes: with replicas, the second half are those of the first
  bool replicas = false;
  std::uint32_t agents = 0;      ///< hosts whose agents start the roles; 0: roles are started by hand
  bool reserve_agent_0 = false;  ///< for the launcher, which asks for it: another host may come first
  bool colocated = false;        ///< server r lives in worker r's process, which starts it: agents start workers alone
  bool own_steps = false;        ///< workers do not wait for each other (ssp, asp)
  std::string job;               ///< JSON, handed to every member
  Nanoseconds join_timeout = std::chrono::seconds(30);  ///< for all to join and be ready
  Nanoseconds heartbeat_interval = std::chrono::milliseconds(500);
  Nanoseconds heartbeat_timeout = std::chrono::seconds(3);
  Nanoseconds leave_timeout = std::chrono::seconds(10);      ///< for members to exit once the job has ended
  Nanoseconds cause_grace = std::chrono::milliseconds(500);  ///< for the cause of a loss to be told: see Coordinator
  RecoveryPlan recovery = {};
};

/// How a job ended.
struct JobResult {
  std::optional<Error> failure;         ///< the first cause; what followed from it is not kept
  std::map<Peer, std::string> reports;  ///< JSON, of the servers and workers that sent one
  /// By a signal: after a step, or at once, which is a failure, too.
  control::Interruption interrupted = {};

  int status() const { return failure ? exit_status(failure->kind()) : 0; }
};

/// The roles that agent `agent` of `agents` starts: servers and workers are each cut evenly, in order, so that
/// the first agent has worker 0 and server 0.
std::vector<Peer> roles_of_agent(const JobPlan& plan, std::uint32_t agent);

/// Rendezvous and life of one job, as a pure state machine: messages and time in, messages and events out.
///
/// Members join and get their ranks; agents are told which roles to start. Once all servers and workers are
/// ready, each is told of all. Then: all workers done -> Finish to the servers; all have reported -> Finish to
/// the workers; all of them have exited -> Finish to the agents. Whatever goes wrong before the last of these
/// fails the job: one cause, and Abort to everybody.
///
/// A role that says it has lost a peer tells of a symptom: that peer's agent may be about to tell how it ended, or the
/// peer's silence to show it. So the symptom becomes the cause only if nothing better is said within `cause_grace`.
///
/// Where restarts are allowed, the loss of a server or worker is no failure, but the end of an epoch of the membership:
/// it is started again, the others are told to regroup, and are waited for as at the beginning. Who keeps the job's
/// state says so as it gets ready; where some of the state is with nobody, all roles are ended and started from what
/// was saved last. A replica takes the place of a server that was lost with its state: ranks go with duties, which may
/// change from epoch to epoch, while agents know roles by the rank that they were started with, their place.
///
/// A job that is interrupted ends between two steps, the same for all workers (see stop.h): they are done then, and the
/// rest is as at its end. Before the first step, where a worker does not ask before its steps, or where a member wants
/// it, it fails at once.
///
/// A worker that cannot be started again, or whose host was lost, is given up where the job may go on with fewer: those
/// who are left have ranks from 0, in the order of their places.
class Coordinator {
 public:
  using Connection = std::string;  ///< a link's name, any bytes

  struct Outgoing {
    Connection to;
    ControlMessage message;
  };
  /// What a member wants written or shown.
  struct Event {
    Peer from;
    /// The process, where it wants something appended: "worker-1-4711".
    std::string process;
    std::variant<control::Append, control::Report, control::Progress, control::Notice> what;
  };
  struct Actions {
    std::vector<Outgoing> messages;
    std::vector<Event> events;
  };

  /// Throws usage where the plan has no worker, or a timeout that cannot work.
  Coordinator(JobPlan plan, Moment now);

  Actions receive(const Connection& from, ControlMessage message, Moment now);
  /// Bytes on this connection that are no message.
  Actions receive_garbage(const Connection& from, const Error& error, Moment now);
  /// Call when nothing more has arrived, at next_tick() at the latest. A call that is late by more than half
  /// the heartbeat timeout shows that this process itself stood still: members' silence is then counted anew.
  Actions tick(Moment now);
  Moment next_tick() const { return next_tick_; }
  /// This process stood still (SIGSTOP) for so long: nobody's silence counts for that, and deadlines come as much
  /// later.
  void stood_still(Nanoseconds late, Moment now);
  /// This process got a signal: the job ends after the step under way, at the second request (StopRequests) at once.
  Actions interrupt(int signal, Moment now);
  /// The job fails for a reason of the caller's.
  Actions abort(const Error& cause, Moment now);

  bool ended() const { return phase_ == Phase::ended; }
  const JobResult& result() const { return result_; }

 private:
  enum class Phase : std::uint8_t { joining, running, finishing, leaving, closing, ended };
  struct State {
    Member member;  ///< its peer is the duty
    Connection connection;
    std::string processor;
    Moment heard;
    std::uint32_t epoch = 0;  ///< that it was told of
    std::uint64_t step = 0;   ///< that it had come to when it got ready
    bool has_state = false;
    bool running = false;  ///< it came back to a second coordinator, and knows the members of its epoch
    bool repeats = false;  ///< it came back, and says again what may not have been heard
    bool ready = false;
    bool done = false;
    std::uint64_t came_to = 0;    ///< the step that it would do next, once it is done
    std::int32_t stopped_by = 0;  ///< a signal; 0: it came to the end
    bool reported = false;
    bool failed = false;  ///< it has said why it ends
    bool asks = true;     ///< before each step
    bool said_bye = false;
    bool exited = false;  ///< as its agent says
  };

  void on(State& from, control::Ready&& message);
  void on(State& from, const control::Stuck& message);
  void on(State& from, const control::Resumed& message);
  void on(State& from, const control::Heartbeat& message);
  void on(State& from, const control::RoleExited& message);
  void on(State& from, const control::Failed& message);
  void on(State& from, control::Report&& message);
  void on(State& from, control::Append&& message);
  void on(State& from, control::Progress&& message);
  void on(State& from, const control::Done& message);
  void on(State& from, const control::Bye& message);
  void on(State& from, const control::Interrupt& message);
  void on(State& from, const control::Paused& message);
  void on(State& from, const auto& message);  ///< what members do not say

  void hello(const Connection& from, const control::Hello& message);
  void refuse(const Connection& to, ErrorKind kind, std::string text);
  void come_back(const Connection& from, const control::Hello& message);
  void tell_again(State& state, const control::Hello& message);
  std::optional<std::uint32_t> free_rank(const control::Hello& message);
  void mark_exited(Peer role);
  void had_ended(const control::RoleExited& message);
  static std::string process_of(Peer place, const State& state);
  void lose(Peer place, ErrorKind kind, std::string text);
  void fail_job(ErrorKind kind, std::string text, Peer culprit = {Role::coordinator, 0});
  void suspect(const State& from, std::string_view text);

  // These, and what members say of it, are in coordinator_stop.cpp.
  void interrupt(std::int32_t signal, bool at_once);
  bool can_stop() const;
  void ask_where_to_stop();
  void tell_where_to_stop();
  control::Interruption interruption() const;

  // What follows is in coordinator_recovery.cpp.
  bool goes_on_without(Peer place, ErrorKind kind, std::string& text);
  bool goes_on_without_host(Peer agent, const std::string& text);
  bool goes_on_with_present();
  bool ends_without(Peer place);
  bool may_give_up(const std::set<Peer>& places) const;
  void give_up(const std::set<Peer>& places);
  void goes_on_after(const std::string& text);
  void drop(Peer place);
  void remove(Peer place);
  void end_process(Peer place);
  void start_absent();
  bool may_start(Peer place) const;
  void regroup(const std::string& text);
  bool survivors_are_ready() const;
  bool beginning_exists() const;
  bool state_is_kept() const;
  void settle_epoch();
  void assign_servers();
  void number_workers();
  void begin_anew();
  void await_returns();
  void end_returns();
  void note_loss(const std::string& text);
  void notice(std::string text);
  void compare_processors();
  void record(std::string line);
  void send_to_agents(const std::set<Peer>& places, auto make_message);
  std::vector<Peer> places() const;
  control::Members list_of_members() const;

  void check_silence(Moment now);
  bool roles_live(Peer agent) const;
  bool is_silent(const State& state) const { return now_ - state.heard >= plan_.heartbeat_timeout; }
  void check_deadline(Moment now);
  void advance();
  void enter(Phase phase, Moment deadline);
  void begin_call(Moment now) { now_ = now; }
  Actions finish_call();

  static bool is_role(Role role) { return role == Role::server || role == Role::worker; }
  std::uint32_t planned(Role role) const;
  std::uint32_t expected(Role role) const;
  bool is_complete(const State& state) const;
  bool has_left(const State& state) const;
  bool all_roles(bool (Coordinator::*holds)(const State&) const) const;
  std::string missing() const;
  std::string_view doing() const;
  State* find(const Connection& connection);
  void send(const State& to, ControlMessage message);
  void broadcast(const ControlMessage& message, auto&& whom);

  JobPlan plan_;
  Phase phase_ = Phase::joining;
  Moment now_;       ///< of the call that is running
  Moment deadline_;  ///< of the phase
  Moment next_tick_;
  std::optional<Error> symptom_;  ///< of a loss; the cause, unless another is told before cause_due_
  Peer symptom_of_;               ///< the place that told of it
  Moment cause_due_ = kNever;
  std::map<Peer, State> members_;  ///< by place
  std::map<Connection, Peer> connections_;

  std::uint32_t epoch_ = 0;        ///< of the membership
  std::uint32_t restarts_ = 0;     ///< of those that are allowed
  bool settled_ = true;            ///< it is known from what this epoch goes on
  bool anew_ = false;              ///< it goes on from what was saved, all roles being new
  bool returning_ = false;         ///< the members of the coordinator before this one are coming back
  std::string processors_;         ///< what was last said of workers' different processors
  std::optional<Moment> lost_at_;  ///< the first loss that the job has not gone on after yet
  std::set<Peer> running_;         ///< places whose processes run, as far as agents told
  std::set<Peer> ending_;          ///< places whose processes have to end before they are started again
  std::set<Peer> to_start_;
  std::set<Peer> given_up_;                   ///< places of workers, and agents, without which the job goes on
  std::set<Peer> resumed_;                    ///< workers that have said so in this epoch
  std::map<Peer, std::uint32_t> dead_;        ///< process numbers of those that have ended last, by place
  std::map<Connection, std::string> former_;  ///< processes that were lost: what they wanted written is
  std::int32_t interrupt_signal_ = 0;         ///< the job is to end; 0: it is not
  StopRequests own_signals_;                  ///< those that this process got
  std::optional<StopVote> stop_vote_;         ///< of the epoch
  Actions actions_;                           ///< of the call that is running
  JobResult result_;
};

}  // namespace psring::net
