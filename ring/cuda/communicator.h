#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include <nccl.h>

#include <psring/common/base/clock.h>
#include <psring/ring/process_group.h>

namespace psring::ring::cuda {

/// NCCL sees a connection that broke before the job knows whose end it was; so long it is waited for.
inline constexpr std::chrono::seconds kUntilTheJobKnows{10};

/// Throws where a call of NCCL failed; the line names it. `communicator`: may be null.
void require(ncclResult_t result, std::string_view call, ncclComm_t communicator = nullptr);

/// One rank's end of an NCCL communicator. No call of it blocks on a peer that is lost: NCCL works in the background,
/// and whoever waits for it calls `check`, which throws where the job has failed.
class Communicator {
 public:
  struct Options {
    std::function<void()> check;
    Nanoseconds patience{0};  ///< with connections that NCCL makes
  };

  /// A collective of `bootstrap`, through which rank 0's id travels.
  Communicator(ProcessGroup& bootstrap, Options options);
  /// Together with all ranks, for a while; then alone.
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  /// NCCL may move what lies there from where it is, instead of through buffers of its own. For good; what is
  /// registered already stays so. Of all ranks, or of none: with the same pieces of memory, in the same places of them,
  /// they have to come to each operation. REQUIRES: it outlives this.
  void register_memory(std::span<std::byte> piece);

  /// Calls `body`, whose calls of NCCL are one group. On return all of it is queued on its streams. `name`: for errors.
  void call(std::string_view name, const std::function<void(ncclComm_t)>& body);

  // From any thread.
  /// What NCCL says went wrong while nobody called it.
  std::optional<std::string> failure();
  /// What is under way of all these ends, as it is; nothing works after that. Together: NCCL waits until what is queued
  /// with one has ended, and that may be queued behind another's.
  static void abort(std::span<Communicator* const> communicators);

 private:
  /// Returns once NCCL has done in the background what it was told.
  void settle(std::string_view name);
  ncclResult_t state();

  const Options options_;
  std::mutex mutex_;  ///< one call of NCCL at a time
  ncclComm_t handle_ = nullptr;
  bool aborted_ = false;
  std::map<std::byte*, void*> registered_;  ///< NCCL's handle, by where it begins
};

}  // namespace psring::ring::cuda
