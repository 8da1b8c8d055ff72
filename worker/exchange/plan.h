#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include <psring/common/base/clock.h>
#include <psring/common/base/consistency.h>
#include <psring/common/base/elements.h>
#include <psring/common/base/events/events.h>
#include <psring/common/base/layout.h>
#include <psring/common/base/memory_ledger.h>
#include <psring/common/base/mesh.h>
#include <psring/common/device/arena.h>
#include <psring/common/device/buffer.h>
#include <psring/optim/loss_scaler.h>
#include <psring/optim/optimizer.h>
#include <psring/optim/schedule.h>
#include <psring/ring/process_group.h>

namespace psring {
struct JobOptions;
}  // namespace psring

namespace psring::net {
class Transport;
}  // namespace psring::net

namespace psring::optim {
class TableRules;
}  // namespace psring::optim

namespace psring::worker {

class Compressor;
class ErrorFeedback;
class PsClient;
struct MeshGroups;

using UnitId = std::size_t;

enum class Pass : std::uint8_t { forward, backward };

struct Step {
  std::uint64_t index = 0;  ///< from 0
};

/// A micro-batch of a step. `virtual_worker` counts the workers whose arithmetic `single` repeats.
struct Micro {
  std::size_t index = 0;
  bool last = true;
  std::size_t virtual_worker = 0;
  bool last_worker = true;
};

/// A unit's flat buffers in this process, as long as the strategy keeps them: whole units with padding, in the layout's
/// types. A frozen unit has no gradients.
struct UnitBuffers {
  Elements parameters;
  Elements gradients;
  /// Copies in the host's memory, when a GPU computes and servers own the units. No copy of gradients that are
  /// compressed, unless the servers return the mean.
  Elements staged_parameters = {};
  Elements staged_gradients = {};
  /// The next backward pass overwrites the gradients instead of adding to them: each micro-batch leaves by itself.
  bool each_micro_alone = false;
};

/// The optimizer of a run, wherever it is applied.
struct OptimizerPlan {
  const optim::Optimizer* rule = nullptr;
  const optim::Schedule* schedule = nullptr;
  double lr = 0;
  double clip_norm = 0;     ///< 0: no clipping
  bool master_copy = true;  ///< of parameters narrower than f32; see optim::MixedRange
  optim::LossScaler loss_scaler;
  /// The workers that hold one copy of the model together: norms are sums over all of them. Null: this worker has the
  /// whole model.
  ring::ProcessGroup* model_group = nullptr;
  /// Optimizer state that the run starts from (--resume): a slot of a unit's range. Empty: the state is zero.
  std::function<void(UnitId, Range, std::size_t slot, std::span<float>)> initial_state = {};
};

/// How tables' rows are trained, wherever that is done.
struct RowPlan {
  const optim::TableRules* rules = nullptr;  ///< null: the model has no table
  const optim::Schedule* schedule = nullptr;
};

/// A worker's place among the processes of the job.
struct Place {
  JobRank rank;  ///< names this worker in messages and errors
  /// With --local-reduce, the data ranks of the workers that push their host's sum; empty: every worker pushes.
  std::vector<std::size_t> pushers = {};
  /// With --shard-group, each data rank's group; the number of a group's members is the layout's number of owners.
  /// Empty: one group of all.
  std::vector<std::size_t> shard_groups = {};
  std::size_t replicas = 0;  ///< followers of each server
  bool one_host = true;      ///< all processes of the job are on one host
};

/// A worker's part in the job. Fixed before the strategy is made; everything that it refers to outlives the strategy.
struct Plan {
  const JobOptions& job;
  const Layout& layout;
  Place place;
  Mesh mesh = {};           ///< of all workers
  DataRank data_rank;       ///< in the data-parallel group
  std::size_t workers = 1;  ///< size of the data-parallel group: n in every formula
  std::uint64_t steps = 0;  ///< number of steps in the run
  OptimizerPlan optimizer;
  RowPlan rows = {};
  Consistency consistency = {};
  StalenessRemedy remedy = {};
  /// Data ranks of the workers that keep residuals of error feedback, and save them.
  std::span<const std::size_t> keepers = {};
  /// The passes of a step, in their order: forward and backward of each micro-batch, or as a pipeline's stage makes
  /// them.
  std::vector<Pass> passes = {};
  /// By unit: its last gradient of a step is handed over after the step's last pass, because other stages of a pipeline
  /// hold some of its tensors, too. Empty: no unit.
  std::vector<bool> held_back = {};
  /// Layers [begin, end) of each unit, from its first to its last, as forward acquires and releases the unit.
  std::span<const Range> unit_layers = {};
  /// The same for backward; empty if backward does not need the unit.
  std::span<const Range> backward_layers = {};
  std::uint64_t first_step = 0;      ///< the step that the initial values are for
  std::uint64_t run_first_step = 0;  ///< the step that the run began with; earlier than first_step after a regroup
  /// The run continues after it lost workers: the whole state of a worker always belongs to one step, whenever an error
  /// comes.
  bool survives_losses = false;
  /// Values that the run starts from (--init, or --resume when servers do not have them), for a unit's range. Empty:
  /// the initialisation that the layout names.
  std::function<void(UnitId, Range, std::span<float>)> initial = {};
  /// Reads tensors that a part saved beside the model's (Gradients::state) from the checkpoint of --resume. Returns
  /// false, and reads nothing, if the checkpoint has no tensors of these names and shapes. Empty: the run begins anew.
  std::function<bool(const UnitLayout& tensors, std::span<float> out)> saved_values = {};

  /// Writes the values that the run starts from. out.size() == range.size().
  void initialise(UnitId unit, Range range, std::span<float> out) const;
  /// The same, rounded to the type of `out`.
  void initialise(UnitId unit, Range range, Elements out) const;
};

/// The handles of this process, through which a strategy and its trainer read, write and communicate. Nothing is
/// global.
struct World {
  MemoryLedger& memory;
  const Clock& clock;
  Events& events;
  Arena* arena = nullptr;               ///< memory that peers of this host read and write, at least lent_bytes; or null
  Device* device = nullptr;             ///< the GPU that computes and holds the units; null: the host does
  net::Transport* transport = nullptr;  ///< to the servers; null: the strategy has none
  ring::ProcessGroup* group = nullptr;  ///< the data-parallel group; null: the strategy asks for none
  ring::ProcessGroup* host = nullptr;   ///< --local-reduce: the workers of this host; null: every worker pushes
  const MeshGroups* mesh = nullptr;     ///< the groups of a mesh; null: every worker has the whole model

  // Made by Training from the handles above.
  std::span<UnitBuffers> units = {};  ///< filled in by the strategy; the trainer computes in them
  /// This process's copy of the layers' buffers (Layer::buffers), which no gradient trains, with initial values.
  std::span<float> buffers = {};
  PsClient* client = nullptr;         ///< to the servers; null: the job has none
  Compressor* compressor = nullptr;   ///< encodes this worker's gradients by a codec; null: no codec
  ErrorFeedback* feedback = nullptr;  ///< keeps the part that compression loses; null: it is dropped

  /// A buffer where this process computes: on the device, or on the host in `arena`.
  Buffer buffer(std::size_t bytes, Category category) const { return buffer(bytes, category, arena); }
  /// The same with another arena of the host; null: pages of its own.
  Buffer buffer(std::size_t bytes, Category category, Arena* host_arena) const;
  /// A device computes and servers own the units: gradients and values pass through staging buffers of the host.
  bool stages() const { return device != nullptr && client != nullptr; }
  /// A staging buffer; empty if nothing is staged.
  Buffer staging(std::size_t bytes) const;
  /// A staging buffer for gradients: empty, too, if a compressor encodes them, because the codes have their own.
  Buffer gradient_staging(std::size_t bytes) const { return staging(compressor == nullptr ? bytes : 0); }
};

/// The arena for a codec's bytes. lent_bytes() reserves room for the gradients a second time; codes that take more lie
/// outside of the arena, and the result is null.
Arena* arena_for_codes(const Plan& plan, const World& world, std::size_t bytes);

}  // namespace psring::worker
