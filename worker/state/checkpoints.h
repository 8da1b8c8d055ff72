#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <psring/optim/checkpoint/checkpoint.h>
#include <psring/optim/checkpoint/folder.h>
#include <psring/worker/state/run_checkpoints.h>
#include <psring/worker/strategy/abilities.h>

namespace psring::worker {

class ErrorFeedback;
class TrainSetup;

/// Throws data, naming --resume and all differences, if a run cannot continue from the checkpoint to the same bits as
/// the run that wrote it: another model, optimizer, seed, batch or data (--other-data allows other data). The strategy,
/// the number of processes, the learning rate and the frozen units may differ.
void check_fits(const optim::Checkpoint& saved, const TrainSetup& setup);

/// Units that are trained, and that the run which --resume continues from had frozen in part at least: the optimizer's
/// state of that begins with zeros.
std::vector<std::string> units_without_state(const TrainSetup& setup);

/// Loads the residual that --resume continues from. `keepers`: the workers that keep residuals now. A worker gets its
/// own residual if the workers are the same as in the saved run; otherwise an even part of the sum, so that no residual
/// is lost from the mean of all workers.
void restore_residual(const optim::Checkpoint& saved, const TrainSetup& setup, std::span<const std::size_t> keepers,
                      std::size_t rank, ErrorFeedback& feedback);

/// A worker's part in saving checkpoints. The strategy gives its part of the state; a keeper (Plan) adds the residual
/// of error feedback; data rank 0 adds the layers' buffers; and worker 0 adds the manifest once all others have written
/// their parts.
class Checkpoints {
 public:
  /// `mesh`: the groups of the job's mesh; null: every worker has the whole model. Throws usage where the strategy
  /// cannot be saved. REQUIRES: all outlive it.
  Checkpoints(const TrainSetup& setup, const Plan& plan, const MeshGroups* mesh, const Abilities& able,
              std::span<const float> buffers, std::span<const std::size_t> keepers = {},
              ErrorFeedback* feedback = nullptr);

  /// The state after `step` updates; a collective of all workers, after quiesce. On return of worker 0's it is
  /// complete.
  void save(std::uint64_t step);
  /// Is it complete? Of worker 0's, which says so.
  bool is_saved(std::uint64_t step) const;

 private:
  void complete(std::uint64_t step, std::span<const optim::StatePart> own);

  const TrainSetup& setup_;
  const std::size_t rank_;
  const std::size_t data_rank_;
  const MeshGroups* const mesh_;
  const Abilities able_;
  const std::span<const float> buffers_;
  const std::span<const std::size_t> keepers_;
  ErrorFeedback* const feedback_;
  const optim::CheckpointFolder folder_;
  std::optional<RunCheckpoints> own_;  ///< worker 0's
};

}  // namespace psring::worker
