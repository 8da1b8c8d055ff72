#include <algorithm>
#include <map>
#include <set>

#include <psring/bench/cost/fitted_costs.h>
#include <psring/cli/job_memory.h>
#include <psring/cli/plan_candidates.h>
#include <psring/cli/resolve.h>
#include <psring/common/base/error.h>
#include <psring/common/proc/options/check.h>

namespace psring::cli {
namespace {

using options::Given;

/// One choice of the options that the plan varies, on top of those that were given.
using Choice = std::map<std::string, std::string>;

/// Adds every choice with the option at each of the values, unless the option was given.
void vary(std::vector<Choice>& choices, const Given& given, const std::string& option,
          const std::vector<std::string>& values) {
  if (given.contains(option) || values.empty()) return;
  std::vector<Choice> all;
  for (const Choice& choice : choices)
    for (const std::string& value : values) {
      Choice next = choice;
      if (!value.empty()) next[option] = value;
      all.push_back(std::move(next));
    }
  choices = std::move(all);
}

/// Numbers of servers that are worth a row: 1, and as many as hosts, and some between.
std::vector<std::string> server_counts(const bench::Mesh& mesh) {
  std::set<std::size_t> counts;
  const std::size_t most = std::min<std::size_t>(mesh.hosts > 1 ? mesh.hosts : mesh.workers(), 1024);
  for (const std::size_t count : {std::size_t{1}, most / 4, most / 2, most})
    if (count > 0) counts.insert(count);
  std::vector<std::string> texts;
  for (const std::size_t count : counts) texts.push_back(std::to_string(count));
  return texts;
}

std::vector<Choice> choices_of(const PlanInput& input, const worker::StrategyKind& kind) {
  std::vector<Choice> choices(1);
  const bool several = input.mesh.workers_per_host > 1 && input.mesh.hosts > 1;
  if (kind.servers && !kind.colocated && !kind.one_server)
    vary(choices, input.job, "servers", server_counts(input.mesh));
  if (kind.servers && several) vary(choices, input.job, "local-reduce", {"", "true"});
  if (kind.ring && kind.stage > 0 && several)
    vary(choices, input.job, "shard-group", {"", std::to_string(input.mesh.workers_per_host)});
  if (kind.buckets) vary(choices, input.job, "bucket", {"", "5M", "100M"});
  if (kind.gathers) vary(choices, input.job, "prefetch", {"", "2"});
  if (kind.gathers) vary(choices, input.job, "reshard-after-forward", {"", "off"});
  return choices;
}

/// Resolves the job. Jobs are started with at most options::kMostProcesses workers; plans may have more.
JobOptions job_of(const PlanInput& input, const std::string& strategy, const worker::StrategyKind& kind,
                  const Choice& choice) {
  const std::size_t workers = kind.one_worker ? 1 : input.mesh.workers();
  const std::size_t startable = std::min<std::size_t>(workers, options::kMostProcesses);
  Given given = input.job;
  for (const auto& [name, text] : choice) given[name] = text;
  given["workers"] = std::to_string(startable);
  const std::size_t batch =
      options::whole_number("--global-batch", given.contains("global-batch") ? given["global-batch"] : "128");
  if (batch % workers != 0)
    fail(ErrorKind::usage, "--global-batch {}: cannot be divided evenly among {} workers", batch, workers);
  LeftOut left_out;
  const bool loopback = input.mesh.hosts == 1 || given.contains("link");
  JobOptions job = resolve(given, strategy, kind, &left_out, loopback);
  if (kind.servers && job.servers == job.workers) job.servers = workers;
  job.workers = workers;
  return job;
}

std::string label_of(const JobOptions& job, const worker::StrategyKind& kind, const Choice& choice) {
  std::string label = job.strategy;
  if (kind.servers) label += fmt::format(" s={}", job.servers);
  static const std::map<std::string, std::string> kShort{
      {"local-reduce", "local-reduce"},     {"shard-group", "group"},    {"bucket", "bucket"}, {"prefetch", "prefetch"},
      {"reshard-after-forward", "reshard"}, {"accumulate", "accumulate"}};
  for (const auto& [name, text] : choice)
    if (name != "servers")
      label += text == "true" ? " " + kShort.at(name) : fmt::format(" {}={}", kShort.at(name), text);
  return label;
}

/// The processes that cut each unit.
std::size_t owners_of(const JobOptions& job, const worker::StrategyKind& kind, const bench::Mesh& mesh) {
  if (kind.servers) return job.servers;
  if (!kind.ring) return 1;
  return job.shard_group == "host" ? mesh.workers_per_host : job.shard_owners().value_or(job.workers);
}

bench::HostCosts costs_of(const PlanInput& input, const JobOptions& job, const bench::Mesh& mesh) {
  bench::HostCosts costs = input.fit ? bench::fitted_costs(*input.fit, job, mesh.hosts > 1) : bench::HostCosts{};
  costs.device = input.device;
  return costs;
}

PlanRow evaluate(const PlanInput& input, const std::shared_ptr<const worker::StrategyKind>& kind,
                 const std::string& strategy, const Choice& choice, const App& app) {
  PlanRow row{.job = job_of(input, strategy, *kind, choice), .kind = kind};
  row.label = label_of(row.job, *kind, choice);
  row.choice = choice;
  bench::Mesh mesh = input.mesh;
  if (kind->one_worker) mesh.hosts = mesh.workers_per_host = 1;
  const bench::Workload work =
      bench::make_workload(row.job, app.worker_registries(), owners_of(row.job, *kind, mesh), input.pass_time);
  row.step = bench::estimate_step(row.job, *kind, work, mesh, costs_of(input, row.job, mesh));
  const bool apart = kind->servers && row.job.placement == "standalone" && mesh.hosts > 1;
  row.hosts = mesh.hosts + (apart ? row.job.servers : 0);
  row.tokens = work.tokens;
  const double rows = work.tokens ? static_cast<double>(work.rows_per_sample) : 1;
  row.samples_per_s = static_cast<double>(row.job.global_batch) * rows / row.step.step_s;
  const net::LinkSpec& card = mesh.hosts > 1 ? mesh.between : mesh.within;
  row.sent_bytes = row.step.link_s * card.bits_per_second / 8;
  return row;
}

/// Adds the memory that the strategy predicts, which a run books.
void add_memory(const PlanInput& input, const App& app, PlanRow& row) {
  JobOptions job = row.job;
  job.data = "synthetic";
  const JobMemory memory = job_memory(job, std::min(input.mesh.hosts, job.workers), app);
  row.process_bytes =
      static_cast<double>(std::max(worker::total_bytes(memory.worker), worker::total_bytes(memory.server)));
  row.fits = !input.memory_bytes || row.process_bytes <= *input.memory_bytes;
}

double value_of(const PlanRow& row) { return row.samples_per_s / static_cast<double>(row.hosts); }

}  // namespace

std::vector<PlanRow> plan_rows(const PlanInput& input, const App& app) {
  std::vector<PlanRow> rows;
  std::optional<Error> refused;
  for (const std::string& strategy : input.strategies) {
    const std::shared_ptr<const worker::StrategyKind> kind =
        app.worker_registries().strategies.make(Spec::parse("--strategies", strategy));
    // One row is kept for each number of servers, shard group and local sum: the best of the choices that only tune.
    std::map<std::string, PlanRow> best;
    for (const Choice& choice : choices_of(input, *kind)) {
      try {
        PlanRow row = evaluate(input, kind, strategy, choice, app);
        const std::string key = fmt::format("{} {} {}", row.job.servers, row.job.shard_group, row.job.local_reduce);
        const auto found = best.find(key);
        if (found == best.end())
          best.emplace(key, std::move(row));
        else if (row.step.step_s < 0.995 * found->second.step.step_s)
          found->second = std::move(row);
      } catch (const Error& error) {
        if (error.kind() != ErrorKind::usage) throw;
        if (!refused) refused = error;
      }
    }
    for (auto& [key, row] : best) {
      add_memory(input, app, row);
      rows.push_back(std::move(row));
    }
  }
  if (rows.empty() && refused) throw *refused;
  std::stable_sort(rows.begin(), rows.end(), [](const PlanRow& a, const PlanRow& b) {
    return a.fits != b.fits ? a.fits : value_of(a) > value_of(b);
  });
  return rows;
}

}  // namespace psring::cli
