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
#include <psring/common/base/memory_ledger.h>
#include <psring/common/base/text/error.h>
#include <psring/common/proc/control/control_link.h>
#include <psring/common/proc/data_links.h>
#include <psring/common/proc/job.h>
#include <psring/common/proc/role_options.h>

namespace psring {

/// The membership of a server or worker in a job: its link to the coordinator, the job's options, its data links and
/// its ledgers. A user's program that pushes and pulls makes one, too.
class Membership {
 public:
  /// When `stop_fd` is readable, joining ends with a timeout; -1: there is none. `asks`: the worker calls
  /// ControlLink::may_begin, so the job can end between two steps.
  Membership(const RoleOptions& options, net::Role role, int stop_fd = -1, bool asks = false);
  ~Membership();
  Membership(const Membership&) = delete;
  Membership& operator=(const Membership&) = delete;

  net::ControlLink& link() { return *link_; }
  const JobOptions& job() const { return job_; }
  std::uint32_t rank() const { return link_->rank(); }
  std::uint32_t epoch() const { return link_->epoch(); }
  net::DataLinks& links() { return *links_; }
  // For links that a role makes itself.
  const net::JobKey& key() const { return key_; }
  const net::DataLinks::Options& link_options() const { return link_options_; }
  ByteLedger& bytes() { return bytes_; }
  MemoryLedger& memory() { return memory_; }
  /// Keeps memory that the data links read and write late (an arena, send buffers) until the links are closed, however
  /// the role ends.
  void keep(std::shared_ptr<const void> memory) { kept_.push_back(std::move(memory)); }
  const Clock& clock() const { return clock_; }
  net::Peer self() const { return {role_, rank()}; }
  /// Does the role run in another role's process? Then the other role reports the process's resident memory.
  bool is_guest() const { return guest_; }

  /// Tells the coordinator how this process is reached, which step it has reached, whether it has state from which
  /// the job can continue, and what its files hold: workers of hosts whose files differ do not train. Waits for all
  /// servers and workers, and returns them, ordered by role and rank. This process's own rank and the job's number of
  /// workers may change with it. Waits for longer than the coordinator, which may continue with the members that have
  /// come.
  std::vector<net::Member> meet(const net::Addresses& addresses, std::uint64_t step = 0, bool has_state = false,
                                const net::Addresses& files = {});
  /// The deadline of a wait before the job can begin or continue.
  Deadline deadline() {
    return {clock_.now() + from_seconds(job_.join_timeout), [this] { link_->check(); }};
  }

  /// Tells the coordinator of a fatal error of this role, before the links close. Returns the error that this role ends
  /// with. The coordinator knows best why a link broke: this role may have seen the end of a process that had lost a
  /// third process. So after the loss of a peer the call waits for the coordinator's cause, for little longer than the
  /// heartbeat timeout.
  Error fail(const Error& error);

  /// Is the error the loss of a peer after which the job may continue?
  bool outlives(const Error& error) const { return job_.goes_on() && error.kind() == ErrorKind::peer_lost; }
  /// Leaves the membership epoch, and enters the next: closes all data links, and frees the memory that was kept for
  /// them. Throws the job's error if the job ends instead.
  void regroup(const Error& error);

  /// Adds bytes to a file of the run folder, in pieces that fit.
  void append(const std::string& file, std::string_view text);
  /// Returns bytes, memory and the members of `extra` (a JSON object, or "") as one JSON object.
  std::string report_json(const std::string& extra) const;

 private:
  void prepare(const std::string& host, const std::string& bind, std::shared_ptr<net::LocalLink> local);
  void make_links();

  const SystemClock clock_;
  net::Role role_;
  const bool guest_;
  const std::string processor_;  ///< see control::Hello; empty for a server, whose bits do not depend on it
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

/// The members that have this role.
std::vector<net::Member> of_role(std::vector<net::Member> members, net::Role role);

/// The rank of the first worker of each host. `workers`: all workers in the order of their ranks.
std::vector<std::size_t> first_of_each_host(const std::vector<net::Member>& workers);

/// The group of each worker for --shard-group, by rank; empty if all workers are one group. `workers`: all workers in
/// the order of their ranks. Throws usage if the groups are hosts, and hosts have different numbers of workers.
std::vector<std::size_t> shard_groups(const JobOptions& job, const std::vector<net::Member>& workers);

/// The work of a joined role in one membership epoch: returns when the job ends, or throws peer_lost. The state that it
/// keeps between epochs is destroyed before the membership.
using Life = std::function<void()>;
using MakeLife = std::function<Life(Membership&)>;

/// Runs a joined role, and tells the coordinator of an error before it throws the error. Returns how a signal ended the
/// job, if one did.
net::control::Interruption run_role(Membership& membership, const MakeLife& make_life);
/// The same for a role with a process of its own: makes the membership first. A signal of the process ends the job
/// after the current step; a second request ends job and process at once, as does the first signal before the role has
/// joined or after the job has failed. Call it before the first thread is made.
net::control::Interruption run_role(const RoleOptions& options, net::Role role, const MakeLife& make_life);

}  // namespace psring
