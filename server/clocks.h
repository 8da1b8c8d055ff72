#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include <psring/server/shard_options.h>
#include <psring/server/staleness.h>

namespace psring::server {

/// The workers' clocks of each piece of units, or of a table, if each push is an update (ssp, asp).
///
/// A worker's clock of a piece is the number of steps whose gradients it has pushed; the piece's version is the sum of
/// all clocks. The clocks say when a pull may be answered, and how stale each gradient was. Under bsp there are no
/// clocks: the version takes their place.
class Clocks {
 public:
  /// REQUIRES: options and consistency outlive this.
  Clocks(const ShardOptions& options, const Consistency& consistency)
      : options_(options), consistency_(consistency), left_(options.workers, false), records_(options.workers) {}

  /// Makes the clocks of all pieces. `trained`: by piece.
  void open(const std::vector<bool>& trained);

  /// True if the piece has clocks: each push updates the piece.
  bool each_push_updates(std::size_t piece) const { return !pieces_[piece].workers.empty(); }
  /// The step whose push is due from the worker. `version`: the piece's.
  std::uint64_t due(std::size_t piece, std::size_t worker, std::uint64_t version) const;
  /// The clock of the slowest worker that has not left; kFinalVersion if all have. Under bsp: `version`.
  std::uint64_t slowest(std::size_t piece, std::uint64_t version) const;

  /// Counts a push that is the next update of the piece, which is at `version`: advances the worker's clock, and
  /// records the gradient's staleness and lag. Throws bug if the worker is further ahead than ssp's bound.
  void count_push(std::size_t piece, std::size_t worker, std::uint64_t version);
  /// The worker whose push is the update under way; nothing under bsp, where an update takes all workers' pushes.
  std::optional<std::size_t> push_being_applied(std::size_t piece) const { return pieces_[piece].push_being_applied; }
  /// The update is made.
  void finish(std::size_t piece) { pieces_[piece].push_being_applied.reset(); }
  /// Staleness and lag of the worker's last gradient of the piece; zero under bsp.
  Staleness last(std::size_t piece, std::size_t worker) const;
  /// The worker is sent this version: its next gradient is computed from it. kFinalVersion: from no values.
  void set_sent(std::size_t piece, std::size_t worker, std::uint64_t version);

  /// The worker pushes nothing more. Nobody waits for it any longer.
  void leave(std::size_t worker) { left_[worker] = true; }
  bool has_left(std::size_t worker) const { return worker < left_.size() && left_[worker]; }

  /// Backup workers: counts a gradient that came in time for its update, or too late.
  void count_in_time(std::size_t worker) { records_[worker].add({}); }
  void count_dropped(std::size_t worker) { ++records_[worker].dropped; }

  /// By worker. Gradients that are pushed after a worker has left are not counted: fewer others make them less stale.
  const std::vector<StalenessRecord>& records() const { return records_; }

 private:
  struct Progress {
    std::uint64_t clock = 0;
    std::uint64_t sent = 0;  ///< the version that the worker was sent last
    Staleness last;
  };
  struct PieceClocks {
    std::vector<Progress> workers;  ///< empty under bsp, and for a piece that is not trained
    std::optional<std::size_t> push_being_applied;
  };

  const ShardOptions& options_;
  const Consistency& consistency_;
  std::vector<PieceClocks> pieces_;
  std::vector<bool> left_;  ///< by worker
  std::vector<StalenessRecord> records_;
};

}  // namespace psring::server
