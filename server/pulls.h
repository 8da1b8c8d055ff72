#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include <psring/common/net/frame.h>

namespace psring::server {

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
