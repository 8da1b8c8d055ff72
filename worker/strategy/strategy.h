#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <psring/common/base/byte_ledger.h>
#include <psring/common/base/clock.h>
#include <psring/common/base/consistency.h>
#include <psring/common/base/elements.h>
#include <psring/common/base/layout.h>
#include <psring/common/base/memory_ledger.h>
#include <psring/common/device/arena.h>
#include <psring/common/device/buffer.h>
#include <psring/optim/checkpoint/shard.h>
#include <psring/optim/loss_scaler.h>
#include <psring/optim/optimizer.h>
#include <psring/optim/schedule.h>
#include <psring/ring/process_group.h>

namespace psring::worker {

class Compressor;
class PsClient;

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

/// A unit's flat buffers in this process, as long as the strategy keeps them; whole units, with padding, in the
/// layout's types. What is not trained has no gradients.
struct UnitBuffers {
  Elements parameters;
  Elements gradients;
  /// Of a device's, where servers are: as they come from them, and go to them. None of gradients that are compressed,
  /// but where servers answer with their mean.
  Elements staged_parameters = {};
  Elements staged_gradients = {};
};

/// The optimizer of a run, wherever it is applied.
struct OptimizerPlan {
  const optim::Optimizer* rule = nullptr;
  const optim::Schedule* schedule = nullptr;
  double lr = 0;
  double clip_norm = 0;     ///< 0: no clipping
  bool master_copy = true;  ///< of parameters narrower than f32; see optim::MixedRange
  optim::LossScaler loss_scaler;
  /// State that the run starts from (--resume), for a slot of a unit's range; empty: zero.
  std::function<void(UnitId, Range, std::size_t slot, std::span<float>)> initial_state = {};
};

/// Payload bytes of one step, and the memory by category, that a strategy says it needs. What it does not
/// say is shown as '—' and never counts as wrong.
struct Prediction {
  std::optional<std::uint64_t> worker_sends;
  std::optional<std::uint64_t> worker_receives;
  std::optional<std::uint64_t> server_receives;  ///< all servers together
  std::optional<std::uint64_t> server_sends;
  std::optional<std::uint64_t> own_server_receives = std::nullopt;  ///< the one in this worker's process
  std::optional<std::uint64_t> own_server_sends = std::nullopt;
  std::optional<std::uint64_t> server_replicates = std::nullopt;  ///< passed on to followers, all together
  /// The most bytes that a worker, and each server (a follower is like its server), books at once.
  std::map<Category, std::uint64_t> worker_memory = {};
  std::map<Category, std::uint64_t> server_memory = {};
  /// What a worker's steps move that is not the same in each: of the whole run, on top.
  std::uint64_t run_sends = 0;
  std::uint64_t run_receives = 0;
  std::optional<double> exposed_s;  ///< of a step, where --link shapes the links
  /// Of an exact strategy: are its sums in rank order, and so its bits those of `single` with as many virtual workers?
  /// Else they differ by rounding.
  bool same_bits = true;
};

/// All that a strategy may use; nothing is global. `workers` is the size of the data-parallel group.
struct Context {
  const Layout& layout;
  std::span<UnitBuffers> units;  ///< the strategy fills them in; the trainer computes in them
  /// This process's copy of what no gradient trains (Layer::buffers), with the values that the run starts from.
  std::span<float> buffers;
  std::size_t rank = 0;
  std::size_t workers = 1;
  std::size_t virtual_workers = 1;
  std::uint64_t seed = 0;
  OptimizerPlan optimizer;
  PsClient* client = nullptr;  ///< null where the job has no servers
  Consistency consistency = {};
  StalenessRemedy remedy = {};
  Compressor* compressor = nullptr;  ///< that this worker's gradients leave through; null: they go as they are
  /// Ranks of the workers whose compressors keep what they lose: state of their own, that they save.
  std::span<const std::size_t> keepers = {};
  std::size_t replicas = 0;        ///< followers of each server
  bool colocated = false;          ///< server r of the job lives in worker r's process
  bool servers_on_device = false;  ///< --server-device: they update there
  /// --local-reduce: of this host's workers, who add gradients up before the first of them pushes, and the ranks of
  /// all who do. Null, empty: every worker pushes its own.
  ring::ProcessGroup* host = nullptr;
  std::span<const std::size_t> pushers = {};
  ring::ProcessGroup* group = nullptr;  ///< of all workers; null where the strategy does not ask for one
  /// --shard-group: which group each worker is in, by rank; as many in each as the layout has owners. Empty: one is
  /// all.
  std::span<const std::size_t> shard_groups = {};
  Arena* arena = nullptr;    ///< where peers of this host can read and write; null where there are none
  Device* device = nullptr;  ///< that computes, and whose memory holds what the strategy makes; null: the host
  MemoryLedger& memory;
  const Clock& clock;
  /// Layers [begin, end) of each unit, from its first to its last: when forward acquires and releases it; and when
  /// backward does, empty where it does not.
  std::span<const Range> unit_layers = {};
  std::span<const Range> backward_layers = {};
  std::uint64_t first_step = 0;  ///< the updates that the run starts from have seen
  /// The run goes on after losses of workers: what each has whole is to be that of one step, whenever an error comes.
  bool goes_on = false;
  /// Values that the run starts from (--init; --resume, where servers do not have them), for a unit's range; empty: the
  /// initialisation that the layout names.
  std::function<void(UnitId, Range, std::span<float>)> initial;

  /// The values that the run starts from, whichever they are.
  void initialise(UnitId unit, Range range, std::span<float> out) const;
  /// Rounded to the parameters' type. out.size() == range.size().
  void initialise(UnitId unit, Range range, Elements out) const;

  /// A buffer where this process computes; where that is the host, in `arena`, or in one that is named; null: on pages
  /// of its own.
  Buffer buffer(std::size_t bytes, Category category) const { return buffer(bytes, category, arena); }
  Buffer buffer(std::size_t bytes, Category category, Arena* of_host) const;
  /// Do what servers send and get go through the host's memory, beside a device's?
  bool stages() const { return device != nullptr && client != nullptr; }
  /// Memory for that; empty where there is no need.
  Buffer staged_buffer(std::size_t bytes) const;
  /// The same for gradients that leave as they are: a compressor's bytes have memory of their own.
  Buffer staged_gradients(std::size_t bytes) const { return staged_buffer(compressor == nullptr ? bytes : 0); }
  /// Where a codec's bytes go: what is lent to peers has room for gradients a second time (lent_bytes); more than that
  /// goes a longer way, and is null.
  Arena* arena_for_codes(std::size_t bytes) const { return bytes <= layout.gradient_bytes() ? arena : nullptr; }
};

/// When ranges move: one way of data-parallel training. The trainer calls the hooks in the order of a
/// step and never changes for a strategy. All but finish_step may be left as they are.
class Strategy {
 public:
  virtual ~Strategy() = default;

  /// Before the first step: the initial parameters are on their way.
  virtual void start() {}
  /// After `start`: the step to begin with, where a run begins with `planned`. A later one where this worker joins a
  /// job that went on after a failure.
  virtual Step first(Step planned) { return planned; }
  virtual void begin_step(Step /*step*/) {}
  /// On return the unit's parameters are readable.
  virtual void acquire(UnitId /*unit*/, Pass /*pass*/) {}
  /// The unit's parameters may go.
  virtual void release(UnitId /*unit*/, Pass /*pass*/) {}
  /// The unit's gradient of this micro-batch is complete: starts communication, never waits. Of units that are trained.
  virtual void grad_ready(UnitId /*unit*/, Micro /*micro*/) {}
  /// Drains gradients, clips, starts the updates of what this process owns.
  virtual void finish_step(Step step) = 0;
  /// The step that comes after one: the next, unless the others have gone on without this worker (--backup-workers).
  virtual Step after(Step step) { return {step.index + 1}; }
  /// After the last step: this worker pushes nothing more. From then on parameters are those that all workers leave
  /// behind, so that acquiring them waits until the last has left.
  virtual void leave() {}
  /// Parameters are current everywhere: before evaluation, checkpoints, the end.
  virtual void quiesce() {}
  /// Does quiesce bring worker 0's Context::buffers to all? Else worker 0 alone evaluates a model that has any.
  virtual bool shares_buffers() const { return false; }

  /// By what the loss of the step under way is multiplied before backward. Asked in every step, after its first forward
  /// pass; and before a checkpoint: after quiesce if error feedback keeps anything, else after wait_saved. See
  /// optim::LossScaler.
  virtual optim::LossScaler loss_scaler() { return {}; }

  /// What this process has of the state that a checkpoint keeps: all processes together have each element once, those
  /// that servers keep are theirs to save. After quiesce, until the next step. Nothing: it cannot be saved.
  virtual std::optional<std::vector<optim::StatePart>> state() { return std::nullopt; }
  /// On return all others have written theirs of the checkpoint of `step`; a collective.
  virtual void wait_saved(std::uint64_t /*step*/) {}

  /// All that a job needs to go on, between two steps, and the step that comes next: whatever the hook that an error
  /// ended has left undone. Nothing: others have some of it.
  struct Whole {
    Step next;
    std::vector<optim::StatePart> parts;
  };
  virtual std::optional<Whole> whole_state() { return std::nullopt; }

  /// Does the unit's gradient buffer add up the micro-batches of a step? Else grad_ready takes each by itself.
  virtual bool adds_up() const { return true; }

  virtual Prediction predict() const { return {}; }
  /// Others' updates between the values that a gradient was computed from and its own; the mean over the pieces whose
  /// updates this worker has heard of since it was asked last.
  virtual double staleness() { return 0; }
  /// Time this process has waited for communication, in total.
  virtual Nanoseconds waited() const { return Nanoseconds{0}; }
};

}  // namespace psring::worker
