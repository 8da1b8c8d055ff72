#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <psring/common/base/clock.h>
#include <psring/common/base/text/error.h>
#include <psring/common/proc/build_id.h>
#include <psring/common/proc/control/control_messages.h>

namespace psring::net {

/// How a job continues after the loss of a server or worker.
struct RecoveryPlan {
  /// The processes that keep the state from which the others continue.
  enum class Keepers : std::uint8_t {
    nobody,   ///< no process: all roles begin anew
    servers,  ///< each server, or its replica, keeps its shard
    workers,  ///< every worker keeps all of it
    both,     ///< the servers, as above, keep one part of the state, and every worker the rest
  };
  struct Anew {
    std::string job;         ///< as JobPlan::job
    std::uint64_t step = 0;  ///< the first step of the new beginning
  };

  std::uint32_t max_restarts = 0;  ///< the number of lost processes that may be started again
  std::uint32_t min_workers = 0;   ///< the fewest workers with which the job continues; 0: all
  Keepers keepers = Keepers::nobody;
  /// Returns the job with this number of workers, as it begins from the last checkpoint.
  std::function<Anew(std::uint32_t workers)> begin_anew = {};
  /// Returns true if a process that is started now can still read the beginning of the job (given as JobPlan::job).
  /// Null: the job reads nothing.
  std::function<bool(const std::string& job)> beginning_exists = {};
  Nanoseconds patience{0};  ///< how long members wait for a lost coordinator

  // For a coordinator that replaces a lost one: the members connect again by themselves, and the coordinator continues
  // where the previous one was.
  bool is_second = false;
  std::uint32_t restarts = 0;    ///< restarts that previous coordinators have used
  std::set<Peer> given_up = {};  ///< places of workers, and agents, that previous coordinators gave up
  bool recovering = false;       ///< the job had not continued yet after the last loss that was recorded

  /// Can the job continue after a loss at all?
  bool possible() const { return max_restarts > 0 || min_workers > 0; }
};

/// The members of a job, the text that they receive, and the times that the coordinator waits for them.
struct JobPlan {
  std::uint32_t workers = 1;
  std::uint32_t servers = 0;  ///< processes; with replicas, the second half are the replicas of the first half
  bool replicas = false;
  std::uint32_t agents = 0;      ///< hosts whose agents start the roles; 0: roles are started by hand
  bool reserve_agent_0 = false;  ///< for the launcher, which asks for rank 0: agents of other hosts get ranks from 1
  std::uint32_t colocated = 0;   ///< servers that run in workers' processes, which start them; the last ranks
  bool own_steps = false;        ///< workers do not wait for each other (ssp, asp)
  BuildId build = {};            ///< of the coordinator
  bool same_build = false;       ///< members of another build are refused; otherwise a warning names them
  bool more = false;             ///< another job follows at the same endpoint: agents stay for it
  std::string job;               ///< JSON, handed to every member
  Nanoseconds join_timeout = std::chrono::seconds(30);  ///< for all members to join and be ready
  Nanoseconds heartbeat_interval = std::chrono::milliseconds(500);
  Nanoseconds heartbeat_timeout = std::chrono::seconds(3);
  Nanoseconds leave_timeout = std::chrono::seconds(10);      ///< for members to exit once the job has ended
  Nanoseconds cause_grace = std::chrono::milliseconds(500);  ///< for the cause of a loss to arrive; see Coordinator
  RecoveryPlan recovery = {};

  /// The number of members of a role.
  std::uint32_t count(Role role) const {
    return role == Role::worker ? workers : role == Role::server ? servers : agents;
  }
  /// Servers that are processes of their own, with their replicas.
  std::uint32_t standalone() const { return servers - colocated; }
  /// The place whose process a role runs in: its worker's for a colocated server, else its own.
  Peer process_of(Peer place) const {
    const bool is_guest = place.role == Role::server && place.rank >= standalone();
    return is_guest ? Peer{Role::worker, place.rank - standalone()} : place;
  }
  /// The colocated server in the process of a place; nothing if there is none.
  std::optional<Peer> guest_of(Peer place) const {
    if (place.role != Role::worker || place.rank >= colocated) return std::nullopt;
    return Peer{Role::server, standalone() + place.rank};
  }
};

/// How a job ended.
struct JobResult {
  std::optional<Error> failure;         ///< the first cause; errors that follow from it are not kept
  std::map<Peer, std::string> reports;  ///< JSON, by server and worker
  /// Set if a signal ended the job: after a step, or at once, which is a failure, too.
  control::Interruption interrupted = {};

  int status() const { return failure ? exit_status(failure->kind()) : 0; }
};

/// Throws usage, naming the flag, if the plan has no worker and does not end agents, if it has too many processes, or
/// if the heartbeat timeout is below two intervals.
void check_plan(const JobPlan& plan);

/// The first process of agent `agent` if `agents` share `count` processes evenly, in order. If the count does not
/// divide, the first agents have one more.
std::uint32_t share_begin(std::uint32_t count, std::uint32_t agents, std::uint32_t agent);

/// The roles that agent `agent` of `agents` starts. Standalone servers and workers are each cut evenly, in order, so
/// the first agent has server 0 and worker 0. If a number does not divide, the first agents have one more.
std::vector<Peer> roles_of_agent(const JobPlan& plan, std::uint32_t agent);

}  // namespace psring::net
