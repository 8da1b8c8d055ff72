#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include <psring/common/proc/role_options.h>
#include <psring/ring/process_group.h>

namespace psring {
class Arena;
class Membership;
namespace net {
struct Member;
}
}  // namespace psring

namespace psring::ring {

class RingLinks;
struct GroupOptions;

/// The options of all groups of one member: they fail when its job fails, and count into its ledger.
GroupOptions group_options(Membership& member);

/// Makes the group of all workers of a job, as the job's options say. `arena_bytes`: room for vectors in the group's
/// arena. `background`, `events`: see LinkOptions. The group must not outlive the links.
std::unique_ptr<ProcessGroup> make_job_group(Membership& member, RingLinks& links,
                                             const std::vector<net::Member>& workers, std::size_t arena_bytes,
                                             bool background, Events* events = nullptr);

/// The same with an arena of the caller's. REQUIRES: `arena` has kShmArenaBytes to spare.
std::unique_ptr<ProcessGroup> make_job_group(Membership& member, RingLinks& links,
                                             const std::vector<net::Member>& workers, std::shared_ptr<Arena> arena,
                                             bool background, Events* events = nullptr);

/// Makes the group of this host's workers, through shared memory. REQUIRES: `arena` has kShmArenaBytes to spare.
std::unique_ptr<ProcessGroup> make_host_group(Membership& member, RingLinks& links,
                                              const std::vector<net::Member>& workers, std::shared_ptr<Arena> arena);

/// A worker in a user's own program: joins a job, and holds the group of all its workers. Belongs to one thread.
/// Throws as the links and the coordinator do: timeout, unauthorised, peer_lost, protocol, usage. If a Session is
/// destroyed without `finish`, the rest of the job sees a lost worker.
class Session {
 public:
  /// Waits until all workers of the job have joined.
  explicit Session(const RoleOptions& options);
  ~Session();

  ProcessGroup& group() const;
  /// A vector of zeros in memory that the group reaches without a copy. Valid as long as the session. At most 1 GiB.
  std::span<float> allocate(std::size_t elements);
  /// Tells the job that this worker is done, and waits until all are; the last call.
  void finish();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace psring::ring
