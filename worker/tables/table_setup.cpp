#include <algorithm>
#include <charconv>
#include <cmath>
#include <string>

#include <fmt/ranges.h>

#include <psring/common/base/consistency.h>
#include <psring/common/base/text/error.h>
#include <psring/common/proc/options/check.h>
#include <psring/common/proc/options/one_table.h>
#include <psring/common/proc/options/table.h>
#include <psring/common/proc/options/values.h>
#include <psring/optim/codec/compression.h>
#include <psring/optim/job_optimizer.h>
#include <psring/optim/optimizers.h>
#include <psring/worker/data/key_reader.h>
#include <psring/worker/exchange/tables/row_cache.h>
#include <psring/worker/tables/row_batches.h>
#include <psring/worker/tables/table_setup.h>

namespace psring::worker {
namespace {

/// An option that a job with tables refuses.
struct Refused {
  bool given;
  std::string flag;
  std::string reason;
};

/// The options that no owner of tables knows, in a model's job and in a program's.
std::vector<Refused> refused_by_owners(const JobOptions& job) {
  return {
      {job.backup_workers > 0, "--backup-workers", "an update of rows waits for every worker"},
      {job.placement == "mixed", fmt::format("--servers mixed:{}", job.standalone_servers()),
       "servers own equal parts of a table"},
      {job.aggregate != "mean", "--aggregate " + job.aggregate, "the gradient of a row is the workers' mean"},
      {optim::compresses(job.compress), "--compress " + job.compress, "gradients of rows have --table-compress"},
      {job.local_reduce, "--local-reduce", "each worker pushes its own rows"},
      {job.server_device == "cuda", "--server-device cuda", "rows are updated on the host"},
  };
}

void refuse(std::span<const Refused> rows, const std::string& who) {
  for (const Refused& row : rows)
    if (row.given) fail(ErrorKind::usage, "{} has tables, and {} is refused: {}", who, row.flag, row.reason);
}

/// When rows come and leave, in any table of the model.
struct AnyTable {
  AnyTable(const JobOptions& job, const Model& model) {
    for (const TableSpec& table : model.tables) {
      const JobOptions own = options::options_of_table(job, table.name);
      const optim::RowRules rules = optim::row_rules(job, table.name);
      sweeps = sweeps || rules.sweeps();
      if (!rules.admits()) continue;
      admits = own.table_admit == job.table_admit ? "--table-admit " + job.table_admit
                                                  : fmt::format("--table {}:admit={}", table.name, own.table_admit);
    }
  }

  bool sweeps = false;
  std::string admits;  ///< the flag by which keys wait for their rows; "": none does
};

/// The option by which the job survives losses. An elastic job begins with MAX workers.
std::string flag_of_losses(const JobOptions& job) {
  if (job.replicas > 0) return "--replicas 1";
  return job.min_workers > 0 ? fmt::format("--elastic {}:{}", job.min_workers, job.workers)
                             : fmt::format("--max-restarts {}", job.max_restarts);
}

/// The option by which updates of rows wait for all workers, or do not.
std::string flag_of_row_consistency(const JobOptions& job, const StrategyKind& strategy) {
  if (job.consistency == strategy.consistency && job.table_consistency == strategy.table_consistency)
    return "--strategy " + job.strategy;
  return (job.table_consistency.empty() ? "--consistency " : "--table-consistency ") + job.row_consistency();
}

/// The most samples of one worker in a step, however many workers an elastic job has lost: servers keep the layout of
/// tables over all membership epochs.
std::size_t largest_batch(JobOptions job) {
  if (job.min_workers > 0) job.workers = job.min_workers;
  return job.batch_per_worker();
}

void check_names(const JobOptions& job, const Model& model) {
  std::vector<std::string> known;
  for (const TableSpec& table : model.tables) known.push_back(table.name);
  for (const std::string& name : options::named_tables(job.table))
    if (std::ranges::count(known, name) == 0)
      fail(ErrorKind::usage, "--table {}: --model {} has the tables {}", name, job.model, fmt::join(known, ", "));
}

void check_without_tables(const JobOptions& job) {
  for (const options::Option& option : options::table_options())
    if (!options::has_default(job, option))
      fail(ErrorKind::usage, "{}: --model {} has no table", options::flag_with_value(job, option, {}), job.model);
}

}  // namespace

void check_tables(const JobOptions& job, const StrategyKind& strategy, const Model& model, bool planned) {
  if (model.tables.empty()) {
    if (strategy.row_servers)
      fail(ErrorKind::usage, "--strategy {}: --model {} has no table for its servers; use ddp", job.strategy,
           job.model);
    return check_without_tables(job);
  }
  const JobOptions plain;
  const bool each_push = parse_consistency(job.consistency).each_push_updates;
  const bool each_push_of_rows = parse_consistency(job.row_consistency()).each_push_updates;
  const std::string consistency = flag_of_row_consistency(job, strategy);
  check_names(job, model);
  const AnyTable any(job, model);
  const std::string of_checkpoints =
      job.checkpoint_every > 0 ? fmt::format("--checkpoint-every {}", job.checkpoint_every) : "--resume " + job.resume;
  const bool checkpoints = job.checkpoint_every > 0 || !job.resume.empty();
  refuse(refused_by_owners(job), "--model " + job.model);
  const Refused rows[] = {
      {planned, "--data synthetic", "the rows depend on the samples"},
      {!strategy.tables, "--strategy " + job.strategy,
       "strategies that train tables: single, ps, ps-ssp, ps-async, ps-colocated, ddp, zero1, zero2, hybrid, "
       "hybrid-async, hybrid-colocated"},
      {strategy.at_owner && job.accumulate > 1,
       fmt::format("--accumulate {} with --strategy {}", job.accumulate, job.strategy),
       "micro-batches of rows are added up at workers"},
      {strategy.row_servers && each_push, "--consistency " + job.consistency,
       "workers average dense gradients; --table-consistency says it of rows"},
      {each_push && !each_push_of_rows, "--table-consistency " + job.table_consistency,
       "with --consistency " + job.consistency + " workers do not wait for each other"},
      {!each_push_of_rows && job.table_lookahead > 1, fmt::format("--table-lookahead {}", job.table_lookahead),
       "under bsp the rows of one step ahead are known"},
      {job.table_cache > 0 && !(parse_consistency(job.row_consistency()).bound.value_or(0) > 0 && each_push_of_rows),
       fmt::format("--table-cache {} with {}", job.table_cache, consistency), "rows are kept for the K steps of ssp:K"},
      {job.table_cache > 0 && job.table_lookahead > 0,
       fmt::format("--table-cache {} with --table-lookahead {}", job.table_cache, job.table_lookahead),
       "rows that are on their way are not in the cache yet"},
      {each_push_of_rows && (any.sweeps || !any.admits.empty()), consistency,
       "--table-admit, --table-ttl and --table-rows count the steps of all workers"},
      {!any.sweeps && job.table_sweep != plain.table_sweep, fmt::format("--table-sweep {}", job.table_sweep),
       "no row leaves without --table-ttl or --table-rows"},
      {each_push_of_rows && job.remedy != "none", "--remedy " + job.remedy, "servers remedy dense gradients alone"},
      {job.optimizer_on == "worker" && !strategy.one_worker, "--optimizer-on worker", "servers update rows"},
      {strategy.row_servers && job.server_threads > 1, fmt::format("--server-threads {}", job.server_threads),
       "one thread updates rows"},
      {job.accumulate_at == "owner", "--accumulate-at owner", "rows are pushed once a step"},
      {optim::loss_scaler(job).active(),
       job.loss_scale == plain.loss_scale ? "--precision " + job.precision : "--loss-scale " + job.loss_scale,
       "gradients of rows are not scaled"},
      {job.device == "cuda", "--device cuda", "rows are read on the host"},
      {job.tensor > 1, fmt::format("--tensor {}", job.tensor), "each worker reads whole rows"},
      {job.pipeline > 1, fmt::format("--pipeline {}", job.pipeline), "each worker reads whole rows"},
      {(job.goes_on() || job.replicas > 0) && each_push_of_rows, flag_of_losses(job) + " with " + consistency,
       "the job continues from one step of all workers"},
      {checkpoints && !any.admits.empty(), of_checkpoints + " with " + any.admits,
       "a checkpoint has no counters of keys without rows"},
      {checkpoints && each_push_of_rows, of_checkpoints + " with " + consistency,
       "a checkpoint holds one step of all workers"},
      {!job.init.empty(), "--init", "rows begin with --table-init"},
      {job.compute != plain.compute, "--compute " + job.compute, "layers that only sleep read no rows"},
  };
  refuse(rows, "--model " + job.model);
}

void check_program_tables(const JobOptions& job) {
  if (job.servers == 0) fail(ErrorKind::usage, "tables: the job has no servers");
  if (job.servers > kMostTableOwners)
    fail(ErrorKind::usage, "--servers {}: at most {} own a table", job.servers, kMostTableOwners);
  refuse(refused_by_owners(job), "this program");
  optim::OptimizerRegistry optimizers;
  optim::register_builtin_optimizers(optimizers);
  JobOptions plain;
  optim::fill_in(plain, *optim::make_optimizer(optimizers, plain));  // as the launcher has done
  const Consistency consistency = parse_consistency(job.row_consistency());
  const Refused rows[] = {
      {consistency.each_push_updates && consistency.bound, "--consistency " + job.row_consistency(),
       "a program's steps need not ask for rows, where they would wait"},
      {job.checkpoint_every > 0, "--checkpoint-every", "a checkpoint has no rows of programs"},
      {!job.resume.empty(), "--resume", "a checkpoint has no rows of programs"},
      {job.replicas > 0, "--replicas", "a program's steps with rows are not repeated"},
      {job.max_restarts > 0, "--max-restarts", "a program's steps with rows are not repeated"},
      {!job.fault.empty(), "--fault", "a program's steps with rows are not repeated"},
      {job.optimizer_on == "worker", "--optimizer-on worker", "servers update rows"},
      {job.server_threads > 1, fmt::format("--server-threads {}", job.server_threads), "one thread updates rows"},
      {job.remedy != "none", "--remedy " + job.remedy, "servers remedy dense gradients alone"},
  };
  refuse(rows, "this program");
  for (const options::Option& option : options::optimizer_options())
    if (options::differs(job, plain, option))
      fail(ErrorKind::usage, "this program has tables, and {} is refused: {}",
           options::flag_with_value(job, option, {}), "rows have --table-optimizer, and the program's learning rate");
}

void check_cache(const JobOptions& job, std::span<const TableLayout> tables) {
  for (const TableLayout& table : tables)
    if (job.table_cache > 0 && RowCache::rows_in(table, job.table_cache, RowCache::steps_of(job)) == 0)
      fail(ErrorKind::usage, "--table-cache {}: a row of table '{}' and its key take {} bytes", job.table_cache,
           table.name, table.row_bytes() + sizeof(std::uint64_t));
}

void check_gain(std::span<const TableLayout> tables, const optim::TableRules& rules) {
  for (const TableLayout& table : tables)
    if (const optim::TableRule& rule = rules.of(table.name);
        rule.codec && rule.gradient_bytes(table) >= table.row_bytes())
      fail(ErrorKind::usage,
           "--table-compress, or compress in --table: the gradient of a row of table '{}' takes {} bytes in this code, "
           "and {} without",
           table.name, rule.gradient_bytes(table), table.row_bytes());
}

Init parse_row_init(const std::string& flag, const std::string& text) {
  const Spec spec = Spec::parse(flag, text);
  Init init;
  if (spec.name() == "uniform")
    init.kind = Init::Kind::uniform;
  else if (spec.name() == "normal")
    init.kind = Init::Kind::normal;
  else if (spec.name() != "constant")
    fail(ErrorKind::usage, "{}: expected uniform:A, normal:A or constant:A, got '{}'", flag, text);
  const std::string& number = spec.argument();
  const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), init.a);
  const bool scale = init.kind != Init::Kind::constant;
  if (error == std::errc() && end == number.data() + number.size() && std::isfinite(init.a) && !(scale && init.a < 0))
    return init;
  fail(ErrorKind::usage, "{}: expected {}:A with a finite number A{}, got '{}'", flag, spec.name(),
       scale ? " >= 0" : "", text);
}

std::size_t table_pieces(const TableLayout& table, std::size_t owners) {
  constexpr std::size_t kPieceBytes = std::size_t{256} << 10;
  constexpr std::size_t kMostPieces = 8;
  return std::clamp<std::size_t>(table.most_keys * table.row_bytes() / owners / kPieceBytes, 1, kMostPieces);
}

std::vector<TableLayout> table_layouts(const JobOptions& job, const Model& model, const Dataset& data,
                                       std::size_t owners) {
  if (model.tables.empty()) return {};
  if (owners > kMostTableOwners)
    fail(ErrorKind::usage, "--servers {}: at most {} own a table", owners, kMostTableOwners);
  const KeyReader keys(data, key_fields_of(model.tables));
  const std::size_t batch = largest_batch(job);
  std::vector<TableLayout> layouts;
  for (std::size_t table = 0; table < model.tables.size(); ++table) {
    const TableSpec& spec = model.tables[table];
    const JobOptions own = options::options_of_table(job, spec.name);
    const std::string named = own.table_init == job.table_init ? "" : "--table " + spec.name + ": ";
    TableLayout layout{.name = spec.name,
                       .width = spec.width,
                       .type = parse_dtype("--table-type", own.table_type),
                       .init = parse_row_init(named + "--table-init", own.table_init),
                       .most_keys = batch * keys.most_keys(table),
                       .most_bags = batch * spec.features.size(),
                       .lookahead = job.table_lookahead};
    const optim::RowRules rules = optim::row_rules(job, spec.name);
    layout.pieces =
        rules.sweeps() || rules.admits() ? 1 :  // so that the order of updates and sweeps, and the memory, is known
            table_pieces(layout, owners);
    layouts.push_back(std::move(layout));
  }
  return layouts;
}

}  // namespace psring::worker
