#pragma once

#include <memory>
#include <span>
#include <vector>

#include <psring/common/base/mesh.h>
#include <psring/ring/process_group.h>

namespace psring::worker {

/// A tensor that several stages of a pipeline hold, such as a tied embedding: the stages, ascending.
using SharingStages = std::vector<std::size_t>;

/// The groups of a job's mesh, as one worker sees them.
struct MeshGroups {
  Mesh mesh;
  JobRank rank;
  ring::ProcessGroup* job = nullptr;             ///< all workers
  std::unique_ptr<ring::ProcessGroup> data;      ///< the workers of the same part of the model: the strategy's group
  std::unique_ptr<ring::ProcessGroup> tensor;    ///< the workers that divide this worker's layers
  std::unique_ptr<ring::ProcessGroup> pipeline;  ///< by stage: the workers that compute this worker's samples
  std::unique_ptr<ring::ProcessGroup> model;     ///< tensor and pipeline together: the workers of one copy of the model
  /// This worker and the one of the stage before, or after; of one worker at the ends of the pipeline. The earlier
  /// stage has rank 0.
  std::unique_ptr<ring::ProcessGroup> with_before;
  std::unique_ptr<ring::ProcessGroup> with_after;
  /// For each list of stages that share a tensor, in the order given: this worker's group, of one worker if its stage
  /// does not share.
  std::vector<std::unique_ptr<ring::ProcessGroup>> sharing;

  std::size_t stage() const { return mesh.stage(rank); }
  std::size_t tensor_rank() const { return mesh.tensor_rank(rank); }
  bool is_first() const { return stage() == 0; }
  bool is_last() const { return stage() + 1 == mesh.pipeline; }

  /// Adds the bytes that all groups but `data` moved since the last call to the byte ledger. The strategy accounts for
  /// `data`.
  void account() const;
};

/// A collective of the job without a message: makes the groups by splits of `job`, which outlives them.
/// REQUIRES: all workers pass the same mesh and lists.
MeshGroups make_mesh_groups(ring::ProcessGroup& job, const Mesh& mesh, std::span<const SharingStages> sharing);

}  // namespace psring::worker
