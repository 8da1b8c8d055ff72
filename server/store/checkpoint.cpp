#include <memory>
#include <vector>

#include <fmt/format.h>

#include <psring/optim/checkpoint/checkpoint.h>
#include <psring/optim/checkpoint/folder.h>
#include <psring/optim/checkpoint/saved_rows.h>
#include <psring/server/store/checkpoint.h>

namespace psring::server {

void begin_from_checkpoint(const JobOptions& job, ShardOptions& options) {
  if (job.resume.empty()) return;
  const auto saved =
      std::make_shared<const optim::Checkpoint>(job.resume);  // shared: a std::function has to be copyable
  options.first_version = saved->step();
  if (options.optimizer == nullptr) return;  // the workers have the whole state
  options.loss_scaler.restore(saved->manifest().scalars);
  options.saved = [saved](const UnitLayout& unit, Range range, const std::string& array, std::span<float> out) {
    saved->read(unit, range, array, out);
  };
  options.saved_rows = [saved](const TableLayout& table, Range buckets, optim::TableRows& rows) {
    optim::read_rows(*saved, table.name, buckets, rows);
  };
}

void write_part(const JobOptions& job, std::uint32_t rank, Shard& shard, std::uint64_t step) {
  const std::vector<optim::StatePart> parts = shard.state();
  const std::vector<optim::TablePart> tables = shard.tables().state();
  if (parts.empty() && tables.empty()) return;
  const std::filesystem::path aside = optim::CheckpointFolder(job.checkpoint_folder(), job.run_id).aside(step);
  optim::write_shard(aside / fmt::format("server-{}{}", rank, optim::kShardSuffix), step, parts, tables);
}

}  // namespace psring::server
