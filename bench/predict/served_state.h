#pragma once

#include <cstdint>
#include <deque>
#include <utility>
#include <vector>

#include <psring/bench/predict/served_cards.h>
#include <psring/bench/predict/worker_actions.h>

namespace psring::bench {

/// A worker, by its place in the list of a step's actions.
struct ServedWorker {
  /// `units`: with tables.
  explicit ServedWorker(std::size_t units) : values_missing(units), values_asked(units), pushes_missing(units) {}

  bool begun = false;  ///< has asked for the initial values
  std::uint32_t step = 0;
  std::size_t next = 0;                       ///< action
  bool waits = false;                         ///< for the answers that `next` names
  std::vector<std::uint32_t> values_missing;  ///< by unit
  std::vector<std::uint32_t> values_asked;    ///< by unit: answers to a pull
  std::vector<std::uint32_t> pushes_missing;  ///< by unit: acknowledgements
  std::uint32_t transfers = 0;                ///< begun

  /// A worker that waits in a collective does not look after its frames to servers.
  bool in_collective(const std::vector<WorkerAction>& actions) const {
    return waits && actions[next].kind == WorkerAction::Kind::await_transfer;
  }
  /// Is there what the action waits for? `ended`: transfers.
  bool has(const WorkerAction& action, std::size_t ended) const {
    if (action.kind == WorkerAction::Kind::await_values)
      return values_missing[action.unit] <= action.later * values_asked[action.unit];
    if (action.kind == WorkerAction::Kind::await_transfer) return ended + action.later >= transfers;
    return action.kind != WorkerAction::Kind::await_pushes || pushes_missing[action.unit] == 0;
  }
};

/// A piece at a server: a round of pushes, and the requests that wait for its next version.
struct HeldPiece {
  std::uint32_t version = 0;
  std::size_t micro = 0;                                         ///< that is collected now
  std::vector<std::uint32_t> pushes;                             ///< by micro-batch
  std::vector<std::pair<std::uint32_t, std::uint32_t>> waiting;  ///< workers and the versions that they asked for
  std::vector<std::pair<std::uint32_t, std::uint32_t>> unacknowledged;  ///< workers and micro-batches of pushes
};

/// A server: takes one frame after another.
struct ServedServer {
  struct Answer {
    net::Peer to;
    net::FrameType type = net::FrameType::values;
    std::size_t piece = 0;
  };

  bool busy = false;
  double work_s = 0;  ///< in all
  std::vector<HeldPiece> pieces;
  std::deque<net::FrameHeader> inbox;
  std::vector<Answer> answers;  ///< that leave once the present work is done
};

}  // namespace psring::bench
