#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include <psring/common/net/transport.h>
#include <psring/server/shard_options.h>
#include <psring/server/store/store.h>

namespace psring::server {

/// Collects the gradients that workers push for the next update of each trained piece.
///
/// A piece's round takes one push from each worker for each micro-batch. Micro-batches are completed in order: once all
/// pushes of the first micro-batch are there, they are added up and dropped; then the pushes of the second, and so on.
/// A micro-batch is complete with the pushes of all workers; with backup workers, without the slowest; under ssp and
/// asp, with any one.
class Rounds {
 public:
  /// REQUIRES: options outlive this.
  explicit Rounds(const ShardOptions& options) : options_(options) {}

  /// Once the store is open.
  void open(const Store& store);
  /// Forgets all pushes. From now on the job has options.workers workers.
  void begin_epoch();

  /// The number of micro-batches in a step.
  std::size_t micros() const { return micros_; }
  /// True if the push is in this round already: it waits here, or its micro-batch has been added up.
  bool has(std::size_t piece, std::size_t micro, std::size_t worker) const;
  /// Returns whether the push waits here for pushes of other workers.
  bool waits(std::size_t piece, std::size_t micro, std::size_t worker) const;
  /// Keeps a push until its micro-batch is complete, and returns the kept message. REQUIRES: it is not in the round.
  net::Message& take(std::size_t piece, net::Message push);

  /// The micro-batch that is collected now; micros() once all are complete.
  std::size_t micro(std::size_t piece) const { return rounds_[piece].micro; }
  bool all_complete(std::size_t piece) const { return micro(piece) == rounds_[piece].micros.size(); }
  /// True if the micro-batch that is collected now has all its pushes. `version`: the piece's.
  bool micro_complete(std::size_t piece, std::uint64_t version) const;
  /// The pushes of the micro-batch that is collected now, in worker order.
  std::vector<const net::Message*> pushes(std::size_t piece) const;
  /// The micro-batch has been added up: drops its pushes and goes on to the next one.
  void finish_micro(std::size_t piece);
  /// The piece was updated: drops all pushes and begins the next round.
  void finish(std::size_t piece);

  /// True if no push of the first micro-batch came yet.
  bool empty(std::size_t piece) const;
  /// Counts a piece whose step is complete and that waits for the other pieces of the shard. Returns true, and begins
  /// to count anew, with the last trained piece.
  bool count_complete_piece();

  /// Returns the bytes of this bookkeeping for a trained piece with this number of micro-batches.
  static std::size_t bytes(std::size_t micros, std::size_t workers);

 private:
  /// The pushes of one micro-batch.
  struct MicroBatch {
    std::size_t pushed = 0;  ///< how many workers have pushed
    std::vector<std::optional<net::Message>> by_worker;
  };
  struct Round {
    std::size_t micro = 0;
    std::vector<MicroBatch> micros;  ///< empty for a piece that is not trained
  };

  const ShardOptions& options_;
  std::size_t micros_ = 0;
  std::vector<Round> rounds_;  ///< by piece
  std::size_t trained_pieces_ = 0;
  std::size_t complete_pieces_ = 0;
};

}  // namespace psring::server
