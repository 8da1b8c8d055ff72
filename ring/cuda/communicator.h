#pragma once

#include <functional>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <nccl.h>

#include <psring/ring/process_group.h>

namespace psring::ring::cuda {

/// One rank's end of an NCCL communicator. No call of it blocks on a peer that is lost: NCCL works in the background,
/// and whoever waits for it calls `check`, which throws where the job has failed.
class Communicator {
 public:
  /// A collective of `bootstrap`, through which rank 0's id travels.
  Communicator(ProcessGroup& bootstrap, const std::function<void()>& check);
  /// Together with all ranks, for a while; then alone.
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  /// Calls `body`, whose calls of NCCL are one group. On return all of it is queued on its streams. `name`: for errors.
  void call(std::string_view name, const std::function<void(ncclComm_t)>& body, const std::function<void()>& check);

  /// Lets NCCL reach memory without a copy of its own, for as long as the communicator lives.
  void add_memory(std::span<std::byte> memory);

  // From any thread.
  /// What NCCL says went wrong while nobody called it.
  std::optional<std::string> failure();
  /// What is under way ends, as it is; nothing works after that.
  void abort();

 private:
  /// Returns once NCCL has done in the background what it was told.
  void settle(std::string_view name, const std::function<void()>& check);
  ncclResult_t state();
  void require(ncclResult_t result, std::string_view name);

  std::mutex mutex_;  ///< one call of NCCL at a time
  ncclComm_t handle_ = nullptr;
  bool aborted_ = false;
  std::vector<void*> memory_;
};

}  // namespace psring::ring::cuda
