#include <algorithm>
#include <iterator>
#include <map>
#include <utility>

#include <psring/bench/cost/fitted_costs.h>
#include <psring/cli/mesh_word.h>
#include <psring/cli/plan_candidates.h>
#include <psring/cli/plan_meshes.h>
#include <psring/cli/resolve.h>
#include <psring/common/base/error.h>
#include <psring/common/base/spec.h>
#include <psring/common/proc/options/check.h>

namespace psring::cli {
namespace {

using options::Given;

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
                  const PlanChoice& choice) {
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
  LeftOut left_out;
  const bool loopback = input.mesh.hosts == 1 || given.contains("link");
  JobOptions job = resolve(given, word.strategy, kind, &left_out, loopback);
  if (job.placement == "mixed")
    job.servers = workers + job.standalone_servers();
  else if (kind.servers && job.servers == job.workers)
    job.servers = workers;
  job.workers = workers;
  if (!each.empty()) job.global_batch = options::whole_number("--batch-size", each) * copies;
  if (job.accumulate > job.batch_per_worker())
    fail(ErrorKind::usage, "--accumulate {}: a worker's batch has only {} samples", job.accumulate,
         job.batch_per_worker());
  return job;
}

/// The processes that cut each unit.
std::size_t owners_of(const JobOptions& job, const worker::StrategyKind& kind, const bench::Mesh& mesh) {
  if (kind.servers) return job.servers;
  if (!kind.ring) return 1;
  return job.shard_group == "host" ? mesh.workers_per_host : job.shard_owners().value_or(job.data_workers());
}

bench::HostCosts costs_of(const PlanInput& input, const JobOptions& job, const bench::Mesh& mesh) {
  bench::HostCosts costs = input.fit ? bench::fitted_costs(*input.fit, job, mesh.hosts > 1) : bench::HostCosts{};
  costs.device = input.device;
  return costs;
}

PlanRow make_row(const PlanInput& input, const std::shared_ptr<const worker::StrategyKind>& kind, const MeshWord& word,
                 const PlanChoice& choice) {
  if (word.parts > 1 && (kind->scatters || !(kind->ring || kind->servers)))
    fail(ErrorKind::usage, "{}: the strategy cannot divide a model", plan_word_text(word));
  if (kind->servers && word.parts > 1)
    fail(ErrorKind::usage, "{}: psring plan predicts no servers in a mesh; use psring compare", plan_word_text(word));
  PlanRow row{.job = job_of(input, word, *kind, choice), .kind = kind, .choice = choice};
  row.label = label_of(row.job, *kind, choice);
  row.series = series_of(row.job, *kind, choice);
  row.inexact = changes_numerics(choice);
  return row;
}

void add_step(const PlanInput& input, const App& app, PlanRow& row) {
  const worker::StrategyKind& kind = *row.kind;
  const bench::Mesh mesh = hosts_of(input, row.job.workers);
  const std::vector<bench::Workload> stages =
      bench::make_workloads(row.job, app.worker_registries(), owners_of(row.job, kind, mesh), input.pass_time);
  row.step = bench::estimate_step(row.job, kind, stages, mesh, costs_of(input, row.job, mesh));
  row.hosts = mesh.hosts + (mesh.hosts > 1 ? row.job.standalone_servers() : 0);
  row.tokens = stages.front().tokens;
  const double rows = row.tokens ? static_cast<double>(stages.front().rows_per_sample) : 1;
  row.samples_per_s = static_cast<double>(row.job.global_batch) * rows / row.step.step_s;
  const net::LinkSpec& card = mesh.hosts > 1 ? mesh.between : mesh.within;
  row.sent_bytes = row.step.link_s * card.bits_per_second / 8;
}

/// Adds the memory that the strategy predicts, which a run books.
void add_memory(const PlanInput& input, const App& app, PlanRow& row) {
  JobOptions job = row.job;
  job.data = "synthetic";
  row.memory = job_memory(job, hosts_of(input, job.workers).hosts, app);
  row.process_bytes = static_cast<double>(row.memory.process_bytes());
  row.fits = !input.memory_bytes || row.process_bytes <= *input.memory_bytes;
}

/// Finds the rows of one strategy.
class Candidates {
 public:
  Candidates(const PlanInput& input, const App& app, const std::string& text)
      : input_(input),
        app_(app),
        word_(plan_word(text, input.job)),
        kind_(app.worker_registries().strategies.make(Spec::parse("--strategies", word_.strategy))) {}

  std::vector<PlanRow> find() {
    std::map<std::string, std::vector<PlanRow>> tuned;  // by what makes a row: the rest only tunes
    for (const PlanChoice& choice : plan_choices(input_.job, input_.choose, input_.mesh, *kind_, word_))
      if (auto row = try_choice(choice)) {
        const JobOptions& job = row->job;
        tuned[fmt::format("{} {} {} {} {}", servers_text(job), job.shard_group, job.local_reduce, job.compress,
                          job.precision)]
            .push_back(std::move(*row));
      }
    std::vector<PlanRow> rows;
    for (auto& [key, all] : tuned) rows.push_back(pick(all));
    return rows;
  }
  /// The first refusal of each option that the plan chose; under "" that of a choice without such an option.
  const std::map<std::string, std::string>& refused() const { return refused_; }

 private:
  std::optional<PlanRow> try_choice(const PlanChoice& choice) {
    try {
      PlanRow row = make_row(input_, kind_, word_, choice);
      add_step(input_, app_, row);
      return row;
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::usage) throw;
      refused_.try_emplace("", error.what());
      for (const char* name : kChoosable)
        if (choice.options.contains(name)) refused_.try_emplace(name, error.what());
      return std::nullopt;
    }
  }

  /// The fastest row; of equal ones the first. With a limit of memory, the fastest that fits.
  PlanRow pick(std::vector<PlanRow>& rows) {
    std::size_t best = 0;
    for (std::size_t i = 1; i < rows.size(); ++i)
      if (rows[i].step.step_s < 0.995 * rows[best].step.step_s) best = i;
    PlanRow fastest = std::move(rows[best]);
    rows.erase(rows.begin() + static_cast<std::ptrdiff_t>(best));
    add_memory(input_, app_, fastest);
    if (fastest.fits) return fastest;
    std::optional<PlanRow> fitting;
    for (const auto& choices : smaller_choices(fastest.choice, input_.job))
      if (auto row = first_that_fits(choices); row && (!fitting || row->step.step_s < fitting->step.step_s))
        fitting = std::move(row);
    return fitting ? std::move(*fitting) : std::move(fastest);
  }
  /// Returns the first choice that fits; each needs less memory than the one before. Memory is quicker to predict than
  /// a step.
  std::optional<PlanRow> first_that_fits(const std::vector<PlanChoice>& choices) {
    std::vector<PlanRow> rows;
    try {
      for (const PlanChoice& choice : choices) rows.push_back(make_row(input_, kind_, word_, choice));
    } catch (const Error& error) {  // more micro-batches than samples
      if (error.kind() != ErrorKind::usage) throw;
    }
    const auto fits = [&](PlanRow& row) {
      if (row.memory.worker.empty()) add_memory(input_, app_, row);
      return row.fits;
    };
    if (rows.empty() || !fits(rows.back())) return std::nullopt;
    const auto first = std::partition_point(rows.begin(), rows.end(), [&](PlanRow& row) { return !fits(row); });
    add_step(input_, app_, *first);
    return std::move(*first);
  }

  const PlanInput& input_;
  const App& app_;
  const MeshWord word_;
  const std::shared_ptr<const worker::StrategyKind> kind_;
  std::map<std::string, std::string> refused_;
};

bool comes_first(const PlanRow& a, const PlanRow& b) { return a.fits != b.fits ? a.fits : a.per_host() > b.per_host(); }

}  // namespace

PlanRows plan_rows(const PlanInput& input, const App& app) {
  PlanRows plan;
  std::map<std::string, std::string> refused;
  std::vector<std::string> words = input.strategies;
  if (words.empty()) words.assign(std::begin(kUsualStrategies), std::end(kUsualStrategies));
  const std::size_t asked = words.size();
  if (input.strategies.empty()) std::ranges::copy(proposed_meshes(input, app), std::back_inserter(words));
  for (std::size_t i = 0; i < words.size(); ++i) {
    const std::string& strategy = words[i];
    Candidates candidates(input, app, strategy);
    std::vector<PlanRow> rows = candidates.find();
    if (i < asked && rows.empty() && candidates.refused().contains(""))
      plan.left_out.push_back(fmt::format("{}: {}", strategy, candidates.refused().at("")));
    for (const auto& [option, reason] : candidates.refused()) refused.try_emplace(option, reason);
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
