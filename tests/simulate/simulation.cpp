#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <utility>

#include <psring/common/base/consistency.h>
#include <psring/optim/rows/record_memory.h>
#include <psring/optim/rows/table_rules.h>
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

/// The bytes of a row's record in the job's table, which has rows of 4 elements.
std::size_t record_bytes(const JobOptions& job) {
  const optim::TableRules rules(job, built_in_names().optimizers);
  return sizeof(optim::RecordHeader) + (4 + rules.of("rows").rule->state_floats(4)) * sizeof(float);
}

/// Compares records: keys and updates are equal, and values and state differ by at most `apart`, or not in any bit.
bool same_rows(const std::vector<std::byte>& a, const std::vector<std::byte>& b, std::size_t record, float apart) {
  if (apart == 0 || a.size() != b.size()) return a == b;
  for (std::size_t at = 0; at < a.size(); at += record) {
    if (std::memcmp(&a[at], &b[at], sizeof(optim::RecordHeader)) != 0) return false;
    std::vector<float> floats[2];
    for (const auto& [bytes, out] : {std::pair(&a, &floats[0]), std::pair(&b, &floats[1])}) {
      out->resize((record - sizeof(optim::RecordHeader)) / sizeof(float));
      std::memcpy(out->data(), &(*bytes)[at + sizeof(optim::RecordHeader)], record - sizeof(optim::RecordHeader));
    }
    if (!same(floats[0], floats[1], apart)) return false;
  }
  return true;
}

/// The most by which values may differ from those of a run without losses: nothing, unless sums have other parts. A
/// row's gradient in few bits may then be rounded to the other side of 0, and a rule that divides by its size goes the
/// other way.
float most_apart(const JobOptions& job, const SimulatedRun& run) {
  if (run.left == job.workers) return 0;
  const bool narrow = job.table_type != "f32" || job.table_compress != "none";
  return narrow ? std::numeric_limits<float>::infinity() : 1e-4F;
}

/// The first thing that does not hold of a run; "" where all does.
std::string wrong(const JobOptions& job, const SimulatedRun& run, const SimulatedRun* quiet) {
  const float apart = most_apart(job, run);
  for (std::size_t rank = 0; rank < run.left; ++rank) {
    if (std::string text = wrong_with_worker(job, run, rank); !text.empty()) return text;
    if (quiet != nullptr && !same(run.workers[rank].parameters, quiet->workers[rank].parameters, apart))
      return fmt::format("worker {} ended with other parameters than where nothing goes wrong", rank);
  }
  for (std::size_t rank = 0; rank < run.servers.size(); ++rank) {
    if (std::string text = wrong_with_server(job, run, rank); !text.empty()) return text;
    const bool compared = quiet != nullptr && rank < quiet->servers.size() && run.servers[rank].lived;
    if (compared && !same_rows(run.servers[rank].rows, quiet->servers[rank].rows, record_bytes(job), apart))
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
  shrunk_with_rows += other.shrunk_with_rows;
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
    const bool shrunk = run.left < scenario.job.workers;
    const bool rows = !run.servers.empty() && !run.servers[0].rows.empty();
    totals_ += {.retransmitted = run.retransmitted,
                .crashed = run.crashes > 0 ? 1U : 0U,
                .crashes = run.crashes,
                .promoted = run.promoted,
                .begun_anew = run.begun_anew,
                .shrunk = shrunk ? 1U : 0U,
                .shrunk_with_rows = shrunk && rows ? 1U : 0U};
    const bool exact = scenario.job.consistency == "bsp";
    finding = wrong(scenario.job, run, exact ? &quiet(scenario.job) : nullptr);
  } catch (const std::exception& error) {
    finding = error.what();
  }
  if (finding.empty()) return std::nullopt;
  return fmt::format("seed {}: {} [{}]", seed, finding, to_string(scenario));
}

}  // namespace psring::test
