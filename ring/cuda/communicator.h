#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include <nccl.h>

#include <psring/common/base/clock.h>
#include <psring/common/base/system/mutex.h>
#include <psring/ring/process_group.h>

namespace psring::ring::cuda {

/// NCCL sees a broken connection before the job knows which peer was lost: the time to wait for the job's verdict.
inline constexpr std::chrono::seconds kUntilTheJobKnows{10};

/// Throws if a call of NCCL failed; the line names the call. `communicator`: may be null.
void require(ncclResult_t result, std::string_view call, ncclComm_t communicator = nullptr);

/// One rank's end of an NCCL communicator. No call blocks on a lost peer: NCCL works in the background, and every wait
/// for NCCL calls `check`, which throws if the job has failed.
class Communicator {
 public:
  struct Options {
    std::function<void()> check;
    Nanoseconds patience{0};  ///< the limit for connections that NCCL makes
  };

  /// A collective of `bootstrap`, which carries rank 0's id.
  Communicator(ProcessGroup& bootstrap, Options options);
  /// Waits for all ranks to end the communicator, for a short time; then aborts it alone.
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  /// Lets NCCL move data in this memory directly, instead of through its own buffers, until the communicator ends. Does
  /// nothing if the piece is registered already. All ranks register the same pieces, and use them at the same offsets
  /// in each operation. REQUIRES: the memory outlives the communicator.
  void register_memory(std::span<std::byte> piece);

  /// Calls `body`, whose NCCL calls form one group. On return all of them are queued on their streams. `name`: for
  /// errors.
  void call(std::string_view name, const std::function<void(ncclComm_t)>& body);

  // From any thread.
  /// The error that NCCL met in the background, if any.
  std::optional<std::string> failure();
  /// Aborts the operations in flight of all these communicators together; no communicator works afterwards. A single
  /// abort could wait for ever, because NCCL waits until the operations of the communicator have ended, and these may
  /// be queued behind operations of another communicator.
  static void abort(std::span<Communicator* const> communicators) PSRING_UNCHECKED;

 private:
  /// Returns once NCCL has finished its background work for the call.
  void settle(std::string_view name);
  ncclResult_t state();

  const Options options_;
  Mutex mutex_;  ///< one call of NCCL at a time
  ncclComm_t handle_ = nullptr;
  bool aborted_ PSRING_GUARDED_BY(mutex_) = false;
  /// NCCL's handle, by the first byte of the piece.
  std::map<std::byte*, void*> registered_ PSRING_GUARDED_BY(mutex_);
};

}  // namespace psring::ring::cuda
