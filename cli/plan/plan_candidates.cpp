#include <algorithm>
#include <atomic>
#include <iterator>
#include <limits>
#include <map>
#include <numeric>
#include <utility>

#include <psring/bench/predict/closed_forms.h>
#include <psring/bench/predict/fit.h>
#include <psring/bench/predict/fitted_costs.h>
#include <psring/cli/options/mesh_word.h>
#include <psring/cli/options/resolve.h>
#include <psring/cli/plan/plan_candidates.h>
#include <psring/cli/plan/plan_meshes.h>
#include <psring/cli/train/entries.h>
#include <psring/common/base/parallel.h>
#include <psring/common/base/system/processors.h>
#include <psring/common/base/text/error.h>
#include <psring/common/base/text/spec.h>
#include <psring/common/proc/options/check.h>
#include <psring/optim/job_optimizer.h>

namespace psring::cli {
namespace {

using options::Given;

constexpr std::size_t kMostThreads = 16;  ///< more bring nothing: a plan has some ten choices that take long

/// A mesh's groups lie within a host, or fill whole hosts: the links that they use are told by their size.
void check_hosts(const PlanInput& input, const MeshWord& word) {
  const std::size_t host = input.mesh.workers_per_host;
  for (const std::size_t group : {word.parts / word.stages, word.parts})
    if (group % host != 0 && host % group != 0)
      fail(ErrorKind::usage,
           "{}: psring plan predicts groups of {} workers only if they divide or fill hosts, which have {}",
           plan_word_text(word), group, host);
}

/// The workers of a row: all of the cluster's, but for one process, and for one copy of the model in a mesh.
std::size_t workers_of(const PlanInput& input, const MeshWord& word, const worker::StrategyKind& kind) {
  const std::size_t all = input.mesh.workers();
  if (word.parts > all) fail(ErrorKind::usage, "{}: the cluster has only {} workers", plan_word_text(word), all);
  if (all % word.parts != 0)
    fail(ErrorKind::usage, "{}: the {} workers of the cluster cannot be divided by {}", plan_word_text(word), all,
         word.parts);
  check_hosts(input, word);
  return kind.one_worker ? 1 : word.one_copy ? word.parts : all;
}

/// The hosts on which a row's workers are; the cluster may have more.
bench::Mesh hosts_of(const PlanInput& input, std::size_t workers) {
  bench::Mesh mesh = input.mesh;
  if (workers == mesh.workers()) return mesh;
  mesh.workers_per_host = std::min(mesh.workers_per_host, workers);
  mesh.hosts = std::max<std::size_t>(1, workers / mesh.workers_per_host);
  return mesh;
}

/// Resolves the job. Jobs are started with at most options::kMostProcesses workers; plans may have more.
JobOptions job_of(const PlanInput& input, const MeshWord& word, const worker::StrategyKind& kind,
                  const PlanChoice& choice, LeftOut& left_out) {
  const std::size_t workers = workers_of(input, word, kind);
  const std::size_t copies = workers / word.parts;
  const std::size_t startable = std::clamp<std::size_t>(options::kMostProcesses / word.parts, 1, copies) * word.parts;
  Given given = input.job;
  for (const auto& [name, text] : choice.options) given[name] = text;
  given["workers"] = std::to_string(startable);
  const std::string each = options::text_of(given, "batch-size");
  const std::size_t batch =
      options::whole_number("--global-batch", given.contains("global-batch") ? given["global-batch"] : "128");
  if (each.empty() && batch % copies != 0)
    fail(ErrorKind::usage, "--global-batch {}: cannot be divided evenly among {} workers", batch, copies);
  const bool loopback = input.mesh.hosts == 1 || given.contains("link");
  JobOptions job = resolve(given, word.strategy, kind, &left_out, loopback);
  if (job.placement == "mixed")
    job.servers = workers + job.standalone_servers();
  else if (kind.has_servers() && job.servers == job.workers)
    job.servers = workers;
  job.workers = workers;
  if (!each.empty()) job.global_batch = options::whole_number("--batch-size", each) * copies;
  if (job.accumulate > job.batch_per_worker())
    fail(ErrorKind::usage, "--accumulate {}: a worker's batch has only {} samples", job.accumulate,
         job.batch_per_worker());
  return job;
}

/// The costs of the reference machine's messages. The cost of a device's update is not known, and left out; a host has
/// a processor for each of its processes.
bench::HostCosts reference_costs(const PlanRow& row, const optim::Optimizer& rule, const bench::Mesh& mesh) {
  const JobOptions& job = row.job;
  const bench::Fit& fit = bench::reference_fit();
  bench::HostCosts costs = bench::message_costs(fit, job, *row.kind, mesh);
  if (row.kind->servers && job.optimizer_on == "server") bench::add_update(fit, job, rule, costs);
  costs.processors =
      static_cast<double>(costs.one_host ? job.workers + job.standalone_servers() : mesh.workers_per_host);
  return costs;
}

bench::HostCosts costs_of(const PlanInput& input, const App& app, const PlanRow& row, const bench::Mesh& mesh) {
  const auto rule = optim::make_optimizer(app.optimizers(), row.job);
  bench::HostCosts costs =
      input.fit ? bench::fitted_costs(*input.fit, row.job, *row.kind, *rule, mesh) : reference_costs(row, *rule, mesh);
  costs.device = input.device;
  costs.one_host = costs.one_host || mesh.one_machine;
  return costs;
}

PlanRow make_row(const PlanInput& input, const std::shared_ptr<const worker::StrategyKind>& kind, const MeshWord& word,
                 const PlanChoice& choice) {
  if (word.parts > 1 && (kind->scatters || !(kind->ring || kind->servers)))
    fail(ErrorKind::usage, "{}: the strategy cannot divide a model", plan_word_text(word));
  if (kind->servers && word.parts > 1)
    fail(ErrorKind::usage, "{}: psring plan predicts no servers in a mesh; use psring compare", plan_word_text(word));
  PlanRow row{.kind = kind, .choice = choice};
  row.job = job_of(input, word, *kind, choice, row.left_out);
  row.label = label_of(row.job, *kind, choice);
  row.series = series_of(row.job, choice);
  row.inexact = changes_numerics(choice);
  return row;
}

std::vector<bench::Workload> workloads_of(const PlanInput& input, const App& app, const PlanRow& row) {
  const std::size_t owners = owners_of(row.job, *row.kind, hosts_of(input, row.job.workers));
  return bench::make_workloads(row.job, app.worker_registries(), owners, input.pass_time, row.memory.rows);
}

void add_step(const PlanInput& input, const App& app, const std::vector<bench::Workload>& stages, PlanRow& row) {
  const bench::Mesh mesh = hosts_of(input, row.job.workers);
  row.step = bench::estimate_step(row.job, *row.kind, stages, mesh, costs_of(input, app, row, mesh));
  row.hosts = mesh.hosts + (mesh.hosts > 1 ? row.job.standalone_servers() : 0);
  row.tokens = stages.front().tokens;
  const double rows = row.tokens ? static_cast<double>(stages.front().rows_per_sample) : 1;
  row.samples_per_s = static_cast<double>(row.job.global_batch) * rows / row.step.step_s;
  const net::LinkSpec& card = mesh.hosts > 1 ? mesh.between : mesh.within;
  row.sent_bytes = row.step.link_s * card.bits_per_second / 8;
}

bool has_tables(const PlanInput& input, const App& app) {
  return !app.worker_registries().models.make(Spec::parse("--model", model_of(input.job)))->tables.empty();
}

/// Adds the memory that the strategy predicts, which a run books. That of tables depends on the samples.
void add_memory(const PlanInput& input, const App& app, PlanRow& row) {
  JobOptions job = row.job;
  if (!has_tables(input, app)) job.data = "synthetic";
  row.memory = job_memory(job, hosts_of(input, job.workers).hosts, app);
  row.process_bytes = static_cast<double>(row.memory.process_bytes());
  row.fits = !input.memory_bytes || row.process_bytes <= *input.memory_bytes;
}

/// Choices of a strategy that become one row: they differ in options that only tune.
class RowChoices {
 public:
  RowChoices(const PlanInput& input, const App& app, const MeshWord& word) : input_(input), app_(app), word_(word) {}

  void add(PlanRow row) { rows_.push_back(std::move(row)); }
  /// Finds the row, if there is one. Groups of choices may be taken by several threads at once.
  void find() {
    // Memory is quicker to predict than a step: where no choice fits, the smaller one that does is the row.
    const bool fits = !input_.memory_bytes || std::ranges::any_of(rows_, [&](PlanRow& row) { return is_small(row); });
    if (!fits && (found_ = smaller_row(rows_.front()))) return;
    std::vector<PlanRow> rows = with_steps();
    if (rows.empty()) return;
    found_ = pick(rows);
    if (found_->memory.worker.empty()) add_memory(input_, app_, *found_);
    if (found_->fits || !fits) return;
    if (auto row = smaller_row(*found_)) found_ = std::move(row);
  }
  std::optional<PlanRow>& found() { return found_; }
  /// Why each choice has no step, if it has none.
  const std::vector<std::pair<PlanChoice, std::string>>& refused() const { return refused_; }

 private:
  bool is_small(PlanRow& row) const {
    try {
      add_memory(input_, app_, row);
      return row.fits;
    } catch (const Error& error) {  // the row's step, or its memory, tells if it is wanted
      if (error.kind() != ErrorKind::usage) throw;
      return false;
    }
  }
  /// The fastest row; of equal ones the first.
  static PlanRow pick(std::vector<PlanRow>& rows) {
    std::size_t best = 0;
    for (std::size_t i = 1; i < rows.size(); ++i)
      if (rows[i].step.step_s < 0.995 * rows[best].step.step_s) best = i;
    return std::move(rows[best]);
  }
  /// The rows with their steps, in their order, without those that are slower than another one for sure.
  std::vector<PlanRow> with_steps() {
    struct Tried {
      std::vector<bench::Workload> stages;
      double least_s = 0;
      bool has_step = false;
    };
    std::vector<Tried> tried(rows_.size());
    std::vector<std::size_t> order(rows_.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::vector<std::string> reasons(rows_.size());
    const auto attempt = [&](std::size_t i, const auto& work) {
      try {
        work();
      } catch (const Error& error) {
        if (error.kind() != ErrorKind::usage) throw;
        reasons[i] = error.what();
      }
    };
    for (const std::size_t i : order)
      attempt(i, [&] {
        const bench::Mesh mesh = hosts_of(input_, rows_[i].job.workers);
        if (has_tables(input_, app_)) add_memory(input_, app_, rows_[i]);  // says what the strategy refuses of tables
        tried[i].stages = workloads_of(input_, app_, rows_[i]);
        tried[i].least_s = bench::least_step_s(rows_[i].job, *rows_[i].kind, tried[i].stages, mesh);
      });
    std::ranges::stable_sort(order, {}, [&](std::size_t i) { return tried[i].least_s; });
    constexpr double kSlower = 1.2;  // a step that is played may be a little shorter than its bound
    double best_s = std::numeric_limits<double>::infinity();
    for (const std::size_t i : order)
      if (reasons[i].empty() && tried[i].least_s < kSlower * best_s)
        attempt(i, [&] {
          add_step(input_, app_, tried[i].stages, rows_[i]);
          tried[i].has_step = true;
          best_s = std::min(best_s, rows_[i].step.step_s);
        });
    std::vector<PlanRow> rows;
    for (std::size_t i = 0; i < rows_.size(); ++i) {
      if (!reasons[i].empty()) refused_.emplace_back(rows_[i].choice, reasons[i]);
      if (tried[i].has_step) rows.push_back(std::move(rows_[i]));
    }
    return rows;
  }
  /// Returns the fastest way of the same choice that needs less memory and fits.
  std::optional<PlanRow> smaller_row(const PlanRow& row) const {
    std::optional<PlanRow> fitting;
    try {
      for (const auto& choices : smaller_choices(row.choice, input_.job))
        if (auto smaller = first_that_fits(row.kind, choices);
            smaller && (!fitting || smaller->step.step_s < fitting->step.step_s))
          fitting = std::move(smaller);
    } catch (const Error& error) {  // the step of the choice itself tells
      if (error.kind() != ErrorKind::usage) throw;
    }
    return fitting;
  }
  /// Returns the first choice that fits; each needs less memory than the one before.
  std::optional<PlanRow> first_that_fits(const std::shared_ptr<const worker::StrategyKind>& kind,
                                         const std::vector<PlanChoice>& choices) const {
    std::vector<PlanRow> rows;
    try {
      for (const PlanChoice& choice : choices) rows.push_back(make_row(input_, kind, word_, choice));
    } catch (const Error& error) {  // more micro-batches than samples
      if (error.kind() != ErrorKind::usage) throw;
    }
    const auto fits = [&](PlanRow& row) {
      if (row.memory.worker.empty()) add_memory(input_, app_, row);
      return row.fits;
    };
    if (rows.empty() || !fits(rows.back())) return std::nullopt;
    const auto first = std::partition_point(rows.begin(), rows.end(), [&](PlanRow& row) { return !fits(row); });
    add_step(input_, app_, workloads_of(input_, app_, *first), *first);
    return std::move(*first);
  }

  const PlanInput& input_;
  const App& app_;
  const MeshWord& word_;
  std::vector<PlanRow> rows_;
  std::optional<PlanRow> found_;
  std::vector<std::pair<PlanChoice, std::string>> refused_;
};

/// Finds the rows of one strategy.
class Candidates {
 public:
  Candidates(const PlanInput& input, const App& app, const std::string& text)
      : word_(plan_word(text, input.job)),
        kind_(
            worker::make_strategy_kind(app.worker_registries(), "--strategies", word_.strategy, model_of(input.job))) {
    for (const PlanChoice& choice : plan_choices(input.job, input.choose, input.mesh, *kind_, word_)) {
      try {
        PlanRow row = make_row(input, kind_, word_, choice);
        const JobOptions& job = row.job;
        const std::string key = fmt::format("{} {} {} {} {}", servers_text(job), job.shard_group, job.local_reduce,
                                            job.compress, job.precision);
        groups_.try_emplace(key, input, app, word_).first->second.add(std::move(row));
      } catch (const Error& error) {
        if (error.kind() != ErrorKind::usage) throw;
        refuse(choice, error.what());
      }
    }
  }

  /// Choices of one key become one row.
  std::map<std::string, RowChoices>& groups() { return groups_; }
  std::vector<PlanRow> rows() {
    std::vector<PlanRow> rows;
    for (auto& [key, group] : groups_) {
      for (const auto& [choice, reason] : group.refused()) refuse(choice, reason);
      if (group.found()) rows.push_back(std::move(*group.found()));
    }
    return rows;
  }
  /// The first refusal of each option that the plan chose; under "" that of a choice without such an option.
  const std::map<std::string, std::string>& refused() const { return refused_; }

 private:
  void refuse(const PlanChoice& choice, const std::string& reason) {
    refused_.try_emplace("", reason);
    for (const char* name : kChoosable)
      if (choice.options.contains(name)) refused_.try_emplace(name, reason);
  }

  const MeshWord word_;
  const std::shared_ptr<const worker::StrategyKind> kind_;
  std::map<std::string, RowChoices> groups_;
  std::map<std::string, std::string> refused_;
};

/// Finds all rows; a thread takes the next one when it has found one.
void find_rows(std::vector<std::unique_ptr<Candidates>>& strategies) {
  std::vector<RowChoices*> groups;
  for (const auto& strategy : strategies)
    for (auto& [key, group] : strategy->groups()) groups.push_back(&group);
  Parallel threads(std::min(usable_processors(), kMostThreads));
  std::atomic<std::size_t> next{0};
  threads.for_slices(threads.threads(), 1, [&](Range) {
    for (std::size_t group = next++; group < groups.size(); group = next++) groups[group]->find();
  });
}

bool comes_first(const PlanRow& a, const PlanRow& b) { return a.fits != b.fits ? a.fits : a.per_host() > b.per_host(); }

}  // namespace

/// Nothing is sent within a process.
RowBytes PlanRow::row_bytes() const {
  const auto workers = static_cast<double>(job.workers);
  const auto servers = static_cast<double>(job.servers);
  const double pairs = workers * servers - static_cast<double>(job.colocated_servers());
  RowBytes sum;
  for (const RowTraffic& rows : memory.rows) {
    const double headers = bench::kHeaderBytes * rows.frames;
    const double up = pairs * (rows.key_bytes + rows.gradient_bytes + 2 * headers);
    const double down = pairs * (rows.row_bytes + (rows.in_parts ? 3 : 2) * headers);  // and acknowledgements
    sum.worker_sends += up / workers;
    sum.worker_receives += down / workers;
    sum.server_receives += up / servers;
    sum.server_sends += down / servers;
  }
  return sum;
}

std::size_t owners_of(const JobOptions& job, const worker::StrategyKind& kind, const bench::Mesh& mesh) {
  if (kind.servers) return job.servers;
  if (!kind.ring) return 1;
  return job.shard_group == "host" ? mesh.workers_per_host : job.shard_owners().value_or(job.data_workers());
}

PlanRows plan_rows(const PlanInput& input, const App& app) {
  refuse_duplicates(input.strategies, input.job);
  const bool tables = has_tables(input, app);
  require_data_for_tables(input.job, app);
  std::vector<std::string> words = input.strategies;
  if (words.empty()) words.assign(std::begin(kUsualStrategies), std::end(kUsualStrategies));
  const std::size_t asked = words.size();
  if (input.strategies.empty()) std::ranges::copy(proposed_meshes(input, app), std::back_inserter(words));
  std::vector<std::unique_ptr<Candidates>> strategies;
  for (const std::string& word : words) strategies.push_back(std::make_unique<Candidates>(input, app, word));
  find_rows(strategies);

  PlanRows plan{.tables = tables, .reference_costs = !input.fit};
  std::map<std::string, std::string> refused;
  for (std::size_t i = 0; i < words.size(); ++i) {
    std::vector<PlanRow> rows = strategies[i]->rows();
    const std::map<std::string, std::string>& why = strategies[i]->refused();
    if (i < asked && rows.empty() && why.contains(""))
      plan.left_out.push_back(fmt::format("{}: {}", words[i], why.at("")));
    for (const auto& [option, reason] : why) refused.try_emplace(option, reason);
    std::move(rows.begin(), rows.end(), std::back_inserter(plan.rows));
  }
  if (plan.rows.empty()) fail(ErrorKind::usage, "{}", refused.contains("") ? refused.at("") : "--strategies: none");
  for (const std::string& option : input.choose) {
    const bool chosen =
        std::ranges::any_of(plan.rows, [&](const PlanRow& row) { return row.choice.options.contains(option); });
    if (!chosen && refused.contains(option))
      plan.left_out.push_back(fmt::format("--choose {}: {}", option, refused.at(option)));
  }
  std::stable_sort(plan.rows.begin(), plan.rows.end(), comes_first);
  return plan;
}

}  // namespace psring::cli
