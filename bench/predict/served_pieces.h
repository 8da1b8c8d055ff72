#pragma once

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include <psring/bench/predict/served_places.h>
#include <psring/common/net/frame.h>

namespace psring::bench {

/// A piece of a server's share of a unit, or of its rows of a table. Tables are numbered behind the units.
struct ServedPiece {
  std::size_t unit = 0;
  bool has_rows = false;
  bool trained = true;
  double pushed_bytes = 0;  ///< of the gradient, as it is pushed
  double frames = 1;
  double asked_bytes = 0;  ///< keys
  double answer_bytes = 0;
  double early_bytes = 0;  ///< of these, those that come before the update
  bool in_parts = false;   ///< as a frame of their own
  double aggregate_s = 0;  ///< of a server, when a micro-batch is complete
  double update_s = 0;     ///< of a server, when the step is complete

  /// Bytes that a frame about the piece carries; `rows` are the early ones.
  double payload_bytes(net::FrameType type) const;
};

/// All pieces of standalone and of colocated servers.
class ServedPieces {
 public:
  /// Takes larger pieces where a step would have thousands.
  explicit ServedPieces(const TimedJob& job);

  /// The number of pieces of a server, of the kind that has most.
  double waves() const { return static_cast<double>(std::max(pieces_[0].size(), pieces_[1].size())); }
  const std::vector<ServedPiece>& of(bool standalone) const { return pieces_[standalone ? 0 : 1]; }
  /// A unit's pieces in the order in which they leave: one piece of each standalone server, or of each colocated one,
  /// or of both.
  struct Turn {
    static constexpr std::size_t kNone = static_cast<std::size_t>(-1);
    std::size_t standalone = kNone;
    std::size_t colocated = kNone;
    std::size_t piece(bool of_standalone) const { return of_standalone ? standalone : colocated; }
  };
  const std::vector<Turn>& turns(std::size_t unit) const { return turns_[unit]; }

 private:
  void add(const TimedJob& job, bool standalone, double coarse);
  void add_rows(const TimedJob& job, bool standalone);
  void order(std::size_t unit);

  std::vector<ServedPiece> pieces_[2];
  std::vector<std::pair<std::size_t, std::size_t>> units_[2];  ///< by unit: its pieces, [first, second)
  std::vector<std::vector<Turn>> turns_;
};

}  // namespace psring::bench
