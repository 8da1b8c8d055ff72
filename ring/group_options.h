#pragma once

#include <functional>

#include <psring/common/base/byte_ledger.h>
#include <psring/common/base/clock.h>

namespace psring::ring {

inline constexpr Nanoseconds kPeerCheck = std::chrono::milliseconds(20);  ///< the wait before a look whether peers live

/// How a group waits and where it counts; the same for every backend.
struct GroupOptions {
  std::function<void()> check;  ///< throws if the job has failed or a peer is lost; called while waiting
  Nanoseconds op_timeout{0};    ///< limit of one wait; 0: no limit while the peers live
  /// Receives the bytes that pass through shared memory whenever `account` is called. Links have ledgers of their own.
  ByteLedger* ledger = nullptr;
};

}  // namespace psring::ring
