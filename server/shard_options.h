#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <source_location>
#include <span>
#include <string>
#include <string_view>

#include <psring/common/base/consistency.h>
#include <psring/common/base/layout.h>
#include <psring/common/base/mesh_part.h>
#include <psring/common/base/range.h>
#include <psring/optim/codec/compression.h>
#include <psring/optim/loss_scaler.h>
#include <psring/optim/optimizer.h>
#include <psring/optim/rows/table_rules.h>
#include <psring/optim/schedule.h>
#include <psring/server/aggregator.h>

namespace psring {
class Device;
}

namespace psring::optim {
class TableRows;
}

namespace psring::server {

/// Work on gradients or parameters that a shard begins.
struct ShardWork {
  std::string_view name;  ///< static: "aggregate" or "update"
  std::uint32_t unit = 0;
  std::uint64_t step = 0;
  std::uint64_t bytes = 0;      ///< that the work reads and writes; copies for answers are not counted
  std::source_location source;  ///< the line that does the work
};

/// Describes a shard. Constant for the shard's life, except for the number of workers (Shard::begin_epoch).
struct ShardOptions {
  std::uint32_t rank = 0;  ///< ranks and numbers are counted within the shard's part of the model
  std::uint32_t servers = 1;
  std::uint32_t workers = 1;
  MeshPart part = {};         ///< of a job that divides the model; else the only one
  std::uint32_t pushers = 0;  ///< workers that push in a step (one per host with --local-reduce); 0: all of them
  double lr = 0;
  double clip_norm = 0;                         ///< 0: no clipping
  optim::LossScaler loss_scaler;                ///< the factor that workers multiply their losses by
  bool master_copy = true;                      ///< keep an f32 copy of narrower parameters; see optim::MixedRange
  const optim::Optimizer* optimizer = nullptr;  ///< null: answers are aggregated gradients (--optimizer-on worker)
  const optim::Schedule* schedule = nullptr;    ///< null if the optimizer is
  const Aggregator* aggregator = nullptr;
  const optim::TableRules* row_rules = nullptr;  ///< of tables' rows; null: a layout with tables is refused
  const optim::Codec* codec = nullptr;  ///< reads compressed gradients; null: gradients are pushed uncompressed
  std::uint64_t seed = 0;               ///< the job's, for the codec
  Consistency consistency = {};
  Consistency row_consistency = {};                 ///< of the rows of tables
  StalenessRemedy remedy = {};                      ///< under ssp and asp, where each push is an update
  std::size_t memory_bytes = std::size_t{1} << 36;  ///< a layout that needs more memory here is refused
  std::uint64_t first_version = 0;                  ///< the version that the job begins with
  /// Reads one array (optim/checkpoint/shard.h) of a unit's range from the checkpoint that the job begins with. Null:
  /// the layout says how parameters begin.
  std::function<void(const UnitLayout&, Range, const std::string&, std::span<float>)> saved = {};
  /// Reads a table's rows of some buckets from that checkpoint; null as well.
  std::function<void(const TableLayout&, Range buckets, optim::TableRows&)> saved_rows = {};
  /// Keep the rows that the last update of each piece of a table changed, as they were before it, so that the version
  /// before can be read: a job that survives losses begins a membership epoch with it.
  bool keeps_old_rows = false;
  std::uint64_t save_every = 0;  ///< steps between two checkpoints; 0: no checkpoints
  Device* device = nullptr;      ///< applies the updates (DeviceApplier); null: the host does
  /// Called before each piece of work; null: nobody wants to know.
  std::function<void(const ShardWork&)> working = {};

  /// This shard's number among the shards of all parts, which take verdicts together, and the number of these shards.
  std::uint32_t job_rank() const { return static_cast<std::uint32_t>(part.in_job(rank)); }
  std::uint32_t job_servers() const { return static_cast<std::uint32_t>(servers * part.count); }
  /// True if an update needs the norm of all gradients: to clip them, or to see whether they are finite. Under ssp and
  /// asp workers clip their own gradients before they push.
  bool needs_norm() const { return (clip_norm > 0 && !consistency.each_push_updates) || loss_scaler.active(); }
  /// True if a step's updates wait for sums over all shards.
  bool needs_verdict() const { return optimizer != nullptr && (needs_norm() || optimizer->layerwise()); }
  /// True if the mean gradients of the whole step are kept until the updates are made.
  bool keeps_mean(const Layout& layout) const { return needs_verdict() || layout.pushes > 1; }
  /// The most pushes that are aggregated together: one for each worker that pushes, or a single one under ssp and asp.
  std::size_t pushes_at_once() const { return consistency.each_push_updates ? 1 : pushers > 0 ? pushers : workers; }
  /// True if there is an f32 copy of narrower parameters.
  bool keeps_master(const Layout& layout) const {
    return optimizer != nullptr && master_copy && layout.parameter_type != DType::f32;
  }
};

}  // namespace psring::server
