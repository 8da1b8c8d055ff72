#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include <psring/common/base/memory_ledger.h>
#include <psring/common/base/row_traffic.h>
#include <psring/worker/exchange/plan.h>

namespace psring::worker {

/// Payload bytes of one step and booked memory by category, as a strategy predicts them. A value that is missing is
/// shown as '—' and never counts as wrong.
struct Prediction {
  std::optional<std::uint64_t> worker_sends;
  std::optional<std::uint64_t> worker_receives;
  std::optional<std::uint64_t> server_receives;  ///< all servers together
  std::optional<std::uint64_t> server_sends;
  std::optional<std::uint64_t> own_server_receives = std::nullopt;  ///< by the server in this worker's process
  std::optional<std::uint64_t> own_server_sends = std::nullopt;
  std::optional<std::uint64_t> server_replicates = std::nullopt;  ///< passed on to followers, by all servers together
  /// The most bytes that a worker, and each server, books at once. A follower books as much as its server, and a copy
  /// of each push that waits for others. If the servers have different shares, `server_memory` is the memory of the
  /// largest, and `each_server_memory` has all by rank. A missing category is not predicted.
  std::map<Category, std::uint64_t> worker_memory = {};
  std::map<Category, std::uint64_t> server_memory = {};
  std::vector<std::map<Category, std::uint64_t>> each_server_memory = {};
  /// Bytes of the whole run on top of the bytes of its steps: the bytes that differ from step to step.
  std::uint64_t run_sends = 0;
  std::uint64_t run_receives = 0;
  std::uint64_t run_server_receives = 0;  ///< by all servers together
  std::uint64_t run_server_sends = 0;
  std::uint64_t run_own_server_receives = 0;
  std::uint64_t run_own_server_sends = 0;
  std::vector<RowTraffic> rows = {};  ///< by table; empty: no server has rows
  /// The part of run_sends that steps exchange in a mesh, because their batches are larger than the smallest; without
  /// the samples that a worker hands out.
  std::uint64_t larger_batches_send = 0;
  std::optional<double> exposed_s;  ///< exposed communication of a step, if --link shapes the links
  /// An exact strategy sums in rank order, so that it is bitwise identical to `single` with the same number of virtual
  /// workers. If not, the results differ by rounding.
  bool same_bits = true;
};

/// Replays which bytes a part holds for units that come and go during a step's passes, so that the peak of several
/// parts together can be predicted.
class Holding {
 public:
  virtual ~Holding() = default;
  virtual void acquire(UnitId unit, Pass pass) = 0;
  virtual void release(UnitId unit, Pass pass) = 0;
  virtual std::uint64_t bytes() const = 0;
  /// The part of `bytes` that also has a staging buffer, if the job stages.
  virtual std::uint64_t staged_bytes() const { return bytes(); }
};

/// Adds the bytes that one call of a collective moves at this rank.
inline void add_call(const ring::Cost& moved, Prediction& sum) {
  sum.worker_sends = sum.worker_sends.value_or(0) + moved.sent;
  sum.worker_receives = sum.worker_receives.value_or(0) + moved.received;
}

}  // namespace psring::worker
