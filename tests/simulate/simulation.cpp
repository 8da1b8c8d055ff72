#include <algorithm>
#include <cmath>
#include <string>

#include <psring/common/base/consistency.h>
#include <psring/tests/simulate/simulation.h>
#include <psring/tests/support/job_names.h>
#include <psring/worker/registries.h>

namespace psring::test {
namespace {

std::string wrong_with_worker(const JobOptions& job, const SimulatedRun& run, std::size_t rank) {
  const std::vector<std::uint64_t>& steps = run.workers[rank].steps;
  // In a later epoch than the first, those that were left.
  const std::uint64_t first = run.epochs == 0 ? 0 : *job.steps - std::min<std::uint64_t>(steps.size(), *job.steps);
  for (std::uint64_t i = 0; i < std::max<std::size_t>(*job.steps - first, steps.size()); ++i)
    if (steps.size() != *job.steps - first || steps[i] != first + i)
      return fmt::format("worker {} made {} steps, not {} .. {} in order", rank, steps.size(), first, *job.steps - 1);
  return "";
}

std::string wrong_with_server(const JobOptions& job, const SimulatedRun& run, std::size_t rank) {
  const SimulatedRun::Server& server = run.servers[rank];
  if (!server.lived) return run.crashes > 0 ? "" : fmt::format("server {} did not live to the end", rank);
  const Consistency consistency = parse_consistency(job.consistency, 0);
  const std::uint64_t updates = *job.steps * (consistency.each_push_updates ? job.workers : 1);
  if (server.version != updates)
    return fmt::format("server {} made {} updates, expected {}", rank, server.version, updates);
  if (consistency.bound && server.most_lag > *consistency.bound)
    return fmt::format("server {} saw a lag of {} under {}", rank, server.most_lag, job.consistency);
  if (rank >= job.servers && run.servers[rank - job.servers].lived &&
      server.state != run.servers[rank - job.servers].state)
    return fmt::format("server {} has something else than server {}, which it follows", rank, rank - job.servers);
  return "";
}

bool same(const std::vector<float>& a, const std::vector<float>& b, float apart) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [&](float x, float y) { return x == y || std::abs(x - y) <= apart; });
}

/// The first thing that does not hold of a run; "" where all does.
std::string wrong(const JobOptions& job, const SimulatedRun& run, const SimulatedRun* quiet) {
  const float apart = run.left < job.workers ? 1e-4F : 0;
  for (std::size_t rank = 0; rank < run.left; ++rank) {
    if (std::string text = wrong_with_worker(job, run, rank); !text.empty()) return text;
    if (quiet != nullptr && !same(run.workers[rank].parameters, quiet->workers[rank].parameters, apart))
      return fmt::format("worker {} ended with other parameters than where nothing goes wrong", rank);
  }
  for (std::size_t rank = 0; rank < run.servers.size(); ++rank) {
    if (std::string text = wrong_with_server(job, run, rank); !text.empty()) return text;
    const bool compared = quiet != nullptr && rank < quiet->servers.size() && run.servers[rank].lived;
    if (compared && run.servers[rank].rows != quiet->servers[rank].rows)
      return fmt::format("server {} ended with other rows than where nothing goes wrong", rank);
  }
  return "";
}

}  // namespace

SimulatedRun simulate(const Scenario& scenario) {
  net::SimulatedNetwork::Options network = scenario.network;
  network.lends_buffers = scenario.bug == Bug::lent_buffers;
  view::SimulatedJobOptions options{.job = scenario.job,
                                    .network = std::move(network),
                                    .delays = scenario.delays,
                                    .reliable = true,
                                    .segment_bytes = 512};  // so that a vector is several frames
  options.server_links = [&](std::size_t pushes) { return make_buggy(scenario.bug, scenario.job, pushes); };
  return view::simulate(options, built_in_names().of_job());
}

Examiner::Totals& Examiner::Totals::operator+=(const Totals& other) {
  retransmitted += other.retransmitted;
  crashed += other.crashed;
  crashes += other.crashes;
  promoted += other.promoted;
  begun_anew += other.begun_anew;
  shrunk += other.shrunk;
  return *this;
}

const SimulatedRun& Examiner::quiet(JobOptions job) {
  job.max_restarts = job.min_workers = job.replicas = 0;
  job.recovery = "checkpoint";
  const std::string key = to_json(job);
  const auto found = quiet_.find(key);
  if (found != quiet_.end()) return found->second;
  Scenario scenario = draw_scenario(0);
  scenario.job = job;
  scenario.network.trouble = {};
  scenario.network.link_bytes = 0;
  scenario.network.deaths.clear();
  return quiet_[key] = simulate(scenario);
}

std::optional<std::string> Examiner::examine(std::uint64_t seed, Bug bug) {
  Scenario scenario = draw_scenario(seed);
  scenario.bug = bug;
  std::string finding;
  try {
    const SimulatedRun run = simulate(scenario);
    totals_ += {run.retransmitted, run.crashes > 0 ? 1U : 0U,
                run.crashes,       run.promoted,
                run.begun_anew,    run.left < scenario.job.workers ? 1U : 0U};
    const bool exact = scenario.job.consistency == "bsp";
    finding = wrong(scenario.job, run, exact ? &quiet(scenario.job) : nullptr);
  } catch (const std::exception& error) {
    finding = error.what();
  }
  if (finding.empty()) return std::nullopt;
  return fmt::format("seed {}: {} [{}]", seed, finding, to_string(scenario));
}

}  // namespace psring::test
