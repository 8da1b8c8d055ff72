#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include <psring/common/base/elements.h>
#include <psring/common/base/memory_ledger.h>
#include <psring/common/base/range.h>
#include <psring/common/device/buffer.h>
#include <psring/common/net/frame.h>
#include <psring/server/store/store.h>

namespace psring::server {

/// Copies of the values that each worker was sent last, for jobs whose updates do not wait for all workers (ssp, asp,
/// backup workers). There a version's memory may be overwritten while an answer is still on its way, so answers are
/// sent from a copy. Delay compensation (--remedy dc-asgd) reads the copies, too.
///
/// A worker's copy is allocated when it is first needed: at the start for delay compensation, otherwise with the first
/// answer that is not stored into the worker's own memory.
class AnswerCopies {
 public:
  /// REQUIRES: options, store and ledger outlive this.
  AnswerCopies(const ShardOptions& options, const Store& store, MemoryLedger& ledger)
      : options_(options), store_(store), ledger_(ledger) {}

  /// Once the store is open.
  void open();
  /// Writes a trained piece's initial values into the copies that exist.
  void begin_with(Range place, std::span<const float> values);
  /// Keeps the values of a trained piece that a worker is sent now, if the worker has a copy or `sent_from_here`.
  /// Returns the copy, or nothing.
  ConstElements keep(std::size_t worker, Range place, ConstElements values, bool sent_from_here);
  /// The values that the worker was sent last. REQUIRES: delay compensation.
  ConstElements last(std::size_t worker, Range place) { return copy_of(worker).part(place); }

 private:
  Elements copy_of(std::size_t worker) { return by_worker_[worker].elements(store_.layout().parameter_type); }

  const ShardOptions& options_;
  const Store& store_;
  MemoryLedger& ledger_;
  std::vector<Buffer> by_worker_;  ///< of all trained pieces; empty under bsp without backup workers
};

/// A request for a version of a piece that is not answered yet.
struct WaitingPull {
  net::Peer worker;
  net::FrameHeader header;      ///< header.version is the version that the worker waits for
  std::span<std::byte> memory;  ///< the worker's own memory for the answer; empty if the transport has no access to it
  std::shared_ptr<const void> holder;  ///< keeps that memory mapped, and nothing of the request's payload
  bool stored = false;                 ///< an update has stored the answer into `memory` already
};

/// The pulls that wait, by piece. At most one per worker and piece.
class WaitingPulls {
 public:
  void open(std::size_t pieces) { by_piece_.resize(pieces); }

  /// Adds a pull. It replaces an older pull of the same worker: a worker waits for one version of a piece at a time.
  /// This bounds the memory of pulls that wait.
  void add(std::size_t piece, WaitingPull pull) {
    std::vector<WaitingPull>& pulls = by_piece_[piece];
    std::erase_if(pulls, [&](const WaitingPull& other) { return other.worker == pull.worker; });
    pulls.push_back(std::move(pull));
  }
  std::span<WaitingPull> of(std::size_t piece) { return by_piece_[piece]; }
  bool empty(std::size_t piece) const { return by_piece_[piece].empty(); }
  /// Calls answer(pull) for each pull of the piece, in the order in which they came, and removes those for which
  /// `answer` returns true.
  template <class Answer>
  void answer(std::size_t piece, Answer&& answer) {
    std::erase_if(by_piece_[piece], answer);
  }
  /// Forgets all pulls.
  void clear() {
    for (auto& pulls : by_piece_) pulls.clear();
  }

 private:
  std::vector<std::vector<WaitingPull>> by_piece_;
};

}  // namespace psring::server
