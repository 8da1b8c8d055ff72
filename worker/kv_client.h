#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include <psring/common/proc/role_options.h>

namespace psring::worker {

class FetchedRows;

/// A worker of a user's own program whose servers keep values by 64-bit keys: it pushes and pulls some keys at a time
/// (Li et al., "Scaling Distributed Machine Learning with the Parameter Server", OSDI 2014). What a push does to a
/// key's values is the rule that the job's --table-optimizer names, one of psring's or the program's own (KvHandle).
///
/// Under --consistency asp each push is an update at once. Under bsp the job's workers push together, and the rule gets
/// the mean; a worker that has nothing to push pushes no keys, so that all push equally often: where one has finished,
/// the others' next push waits until --op-timeout. A worker reads its own writes. Belongs to one thread.
///
/// All calls throw as the links and the coordinator do: timeout, unauthorised, peer_lost, protocol, usage. A KvClient
/// that goes without `finish` is a lost worker to the rest of the job.
class KvClient {
 public:
  struct Options {
    std::size_t width = 1;            ///< values of a key, 1 to 8192
    std::string init = "constant:0";  ///< of keys that nobody has pushed; or uniform:A, normal:A
    std::size_t most_keys = 65536;    ///< different keys in one call
  };
  using Pull = std::shared_ptr<FetchedRows>;  ///< one that has begun; it must not outlive the client

  /// Waits until all processes of the job are there. All workers have to pass the same options.
  KvClient(const RoleOptions& job, Options options);
  ~KvClient();

  std::size_t rank() const;     ///< of this worker
  std::size_t workers() const;  ///< of the job

  /// Begins to push values [keys, width] with a rate (lr) for the rule. A key may repeat: its values are summed.
  /// Returns once they have been copied; waits while the push before is on its way.
  void push(std::span<const std::uint64_t> keys, std::span<const float> values, double lr = 1);
  /// Waits until the servers have taken all pushes.
  void wait();

  /// Begins to pull the values of keys, in any order and with repetitions, as they are after this worker's pushes so
  /// far.
  Pull begin_pull(std::span<const std::uint64_t> keys);
  /// Waits for them, and writes them in the order of the keys: [keys, width].
  void end_pull(const Pull& pull, std::span<float> values);
  void pull(std::span<const std::uint64_t> keys, std::span<float> values) { end_pull(begin_pull(keys), values); }

  /// Waits for all pushes, and tells the job that this worker is done; the last call.
  void finish();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace psring::worker
