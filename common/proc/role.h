#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <psring/common/base/byte_ledger.h>
#include <psring/common/base/deadline.h>
#include <psring/common/base/error.h>
#include <psring/common/base/memory_ledger.h>
#include <psring/common/base/trace.h>
#include <psring/common/proc/control_link.h>
#include <psring/common/proc/data_links.h>
#include <psring/common/proc/job.h>
#include <psring/common/proc/role_options.h>

namespace psring {

/// A server's or worker's part in a job: its link to the coordinator, what the job says, its data links
/// and its ledgers. A user's program that pushes and pulls makes one, too.
class Membership {
 public:
  /// Once `stop_fd` is readable, joining is given up as timed out; -1: it is not. `asks`: of a worker, whether it calls
  /// ControlLink::may_begin, so that it can be ended between two steps.
  Membership(const RoleOptions& options, net::Role role, int stop_fd = -1, bool asks = false);
  ~Membership();
  Membership(const Membership&) = delete;
  Membership& operator=(const Membership&) = delete;

  net::ControlLink& link() { return *link_; }
  const JobOptions& job() const { return job_; }
  std::uint32_t rank() const { return link_->rank(); }
  std::uint32_t epoch() const { return link_->epoch(); }
  net::DataLinks& links() { return *links_; }
  /// For links that a role makes itself.
  const net::JobKey& key() const { return key_; }
  const net::DataLinks::Options& link_options() const { return link_options_; }
  ByteLedger& bytes() { return bytes_; }
  MemoryLedger& memory() { return memory_; }
  /// Keeps what the data links read and write late (an arena, buffers that are sent from) until they are closed,
  /// however the role ends.
  void keep(std::shared_ptr<const void> memory) { kept_.push_back(std::move(memory)); }
  const Clock& clock() const { return clock_; }
  net::Peer self() const { return {role_, rank()}; }
  /// Lives in another role's process, which is who tells of that process's resident memory.
  bool is_guest() const { return guest_; }

  /// Tells the coordinator how this process is reached, the step that it has come to, and whether it has state from
  /// which the job can go on; waits for all servers and workers, and returns them, ordered by role and rank. With them
  /// comes this process's own rank, which may be another than before, and the job's number of workers, the same. Waits
  /// for longer than the coordinator, which may go on with those who have come.
  std::vector<net::Member> meet(const net::Addresses& addresses, std::uint64_t step = 0, bool has_state = false);
  /// For whatever has to come about before the job can begin, or go on.
  Deadline deadline() {
    return {clock_.now() + from_seconds(job_.join_timeout), [this] { link_->check(); }};
  }

  /// May the job go on after what a peer's loss did to this process?
  bool outlives(const Error& error) const { return job_.goes_on() && error.kind() == ErrorKind::peer_lost; }
  /// Leaves the epoch of the membership for the next: closes all data links, and lets go of what was kept for them.
  /// Throws what the job ends with, where it does.
  void regroup(const Error& error);

  /// Adds bytes to a file of the run folder, in pieces that fit.
  void append(const std::string& file, std::string_view text);
  /// This process's part of the run's trace, as trace/<role>-<rank>.json; nothing where it is off.
  void send_trace(Trace& trace);
  /// Bytes, memory and whatever `extra` (members of a JSON object, "" for none) adds, as one JSON object.
  std::string report_json(const std::string& extra) const;

 private:
  void prepare(const std::string& host, const std::string& bind, std::shared_ptr<net::LocalLink> local);
  void make_links();

  const SystemClock clock_;
  net::Role role_;
  const bool guest_;
  const std::string processor_;  ///< as control::Hello has it; a server's bits do not depend on it
  const net::JobKey key_;
  net::DataLinks::Options link_options_;
  ByteLedger bytes_;
  MemoryLedger memory_;
  std::unique_ptr<net::ControlLink> link_;
  JobOptions job_;
  std::optional<net::Refusals> refusals_;          ///< outlives all links
  std::vector<std::shared_ptr<const void>> kept_;  ///< shared with the role; outlives links_
  std::unique_ptr<net::DataLinks> links_;
};

/// Those of a role.
std::vector<net::Member> of_role(std::vector<net::Member> members, net::Role role);

/// Ranks of the first worker of each host, of all workers in the order of their ranks.
std::vector<std::size_t> first_of_each_host(const std::vector<net::Member>& workers);

/// --shard-group: which group each worker is in, by rank; empty where all are in one. `workers`: all of them in the
/// order of their ranks. Throws usage where hosts do not have as many each.
std::vector<std::size_t> shard_groups(const JobOptions& job, const std::vector<net::Member>& workers);

/// What a role that has joined does in each epoch of the membership: returns with the job, or throws peer_lost. What it
/// keeps from one epoch to the next goes before the membership does.
using Life = std::function<void()>;
using MakeLife = std::function<Life(Membership&)>;

/// Runs a role that has joined, and sees to it that the coordinator hears of an error before it is thrown on. How the
/// job ended, where a signal did it.
net::control::Interruption run_role(Membership& membership, const MakeLife& make_life);
/// The same of the role that a process is: makes its membership first. A signal that the process gets ends the job
/// after the step under way; a second one ends both at once, as one does before the role has joined, or once the job
/// has failed. Call it before the first thread.
net::control::Interruption run_role(const RoleOptions& options, net::Role role, const MakeLife& make_life);

}  // namespace psring
