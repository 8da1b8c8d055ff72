#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include <psring/ring/group_options.h>
#include <psring/ring/request.h>
#include <psring/ring/shm/endpoint.h>
#include <psring/ring/work.h>

namespace psring::ring {

class ShmMessage;
class ShmOperation;
class ShmProgress;

/// Anything that a rank waits for.
class ShmTask : public Operation {
 public:
  explicit ShmTask(ShmProgress& progress) : progress_(progress) {}
  void wait() final;

  virtual bool finished() const = 0;
  /// The operation, as errors name it.
  virtual Announced said() const = 0;

 protected:
  ShmProgress& progress() const { return progress_; }

 private:
  ShmProgress& progress_;
};

/// Starts, advances and waits for the operations of a group. Collectives run one after another, in the order of their
/// calls; messages run beside them.
class ShmProgress {
 public:
  ShmProgress(ShmEndpoint& at, GroupOptions options);
  ~ShmProgress();

  Work start_collective(const Request& request);
  Work start_message(const Request& request);

  /// Advances everything in flight as far as possible without waiting.
  void advance();
  /// Spins, yields, then sleeps; every 20 ms it checks whether the peers live. Throws peer_lost or timeout.
  void wait_for(const ShmTask& task);

  /// The number of the next collective.
  std::uint64_t next_number() const { return next_; }

 private:
  void make_room(const Call& said);
  void check_peers(const ShmTask& task, Moment since);

  ShmEndpoint& at_;
  const GroupOptions options_;
  std::uint64_t next_ = 0;
  std::uint64_t completed_ = 0;  ///< by all ranks, when this rank last looked
  std::deque<std::shared_ptr<ShmOperation>> queue_;
  std::deque<std::shared_ptr<ShmMessage>> messages_;
  std::vector<std::uint64_t> sent_;      ///< messages to each rank
  std::vector<std::uint64_t> received_;  ///< messages from each rank
};

}  // namespace psring::ring
