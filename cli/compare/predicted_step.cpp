#include <algorithm>
#include <chrono>
#include <optional>
#include <set>

#include <fmt/ranges.h>

#include <psring/bench/predict/fitted_costs.h>
#include <psring/bench/predict/measure.h>
#include <psring/cli/compare/bound.h>
#include <psring/cli/compare/predicted_step.h>
#include <psring/cli/compare/sweep.h>
#include <psring/cli/plan/plan_candidates.h>
#include <psring/cli/train/job_memory.h>
#include <psring/cli/train/other_load.h>
#include <psring/common/base/system/processors.h>
#include <psring/common/base/text/error.h>
#include <psring/common/base/text/spec.h>
#include <psring/common/base/text/text.h>
#include <psring/common/device/mapping.h>
#include <psring/common/proc/fault.h>
#include <psring/optim/job_optimizer.h>
#include <psring/worker/pace.h>

namespace psring::cli {
namespace {

constexpr std::size_t kMostLinks = 2;
constexpr auto kMessageMeasure = std::chrono::milliseconds(5);  ///< for each size of a message

bool sleeps(const JobOptions& job) { return worker::parse_compute(job.compute).has_value(); }

std::size_t micro_batch_of(const JobOptions& job) {
  return std::max<std::size_t>(1, job.batch_per_worker() / job.accumulate);
}

std::tuple<std::string, std::size_t, std::string, std::size_t> computing_of(const JobOptions& job) {
  return {job.model, micro_batch_of(job), job.precision, job.threads};
}

/// The ways of the job's messages in a fit.
std::set<std::string> ways_of(const JobOptions& job, const worker::StrategyKind& kind) {
  const std::string tcp = job.encrypt ? "tcp-encrypted" : "tcp";
  std::set<std::string> ways;
  if (kind.has_servers()) ways.insert("server." + tcp);
  if (!kind.servers) ways.insert("ring." + tcp);
  return ways;
}

bool has_tables(const JobOptions& job, const App& app) {
  return !app.worker_registries().models.make(Spec::parse("--model", job.model))->tables.empty();
}

/// Does one process that computes a micro-batch of the job fit into this host's memory?
bool fits_here(const JobOptions& job, const App& app) {
  JobOptions alone = one_process(job);
  alone.global_batch = micro_batch_of(job);
  alone.accumulate = 1;
  if (!has_tables(job, app)) alone.data = "synthetic";
  alone.steps = 1;
  alone.resume.clear();
  const double host = static_cast<double>(host_memory_bytes());
  return static_cast<double>(job_memory(alone, 1, app).process_bytes()) <= host;
}

}  // namespace

std::vector<PredictLink> parse_predict_links(const std::string& text) {
  if (text == "none") return {};
  std::vector<PredictLink> links;
  for (const std::string& link : split_links(text)) {
    try {
      links.push_back({link, net::parse_link(link)});
    } catch (const Error&) {
      fail(ErrorKind::usage,
           "--predict-link: expected RATE[,DELAY] such as 10gbit,20us, two of them between commas, or none; got '{}'",
           text);
    }
  }
  if (links.size() > kMostLinks)
    fail(ErrorKind::usage, "--predict-link {}: expected one or two links, got {}", text, links.size());
  if (links.size() == 2 && links[0].text == links[1].text)
    fail(ErrorKind::usage, "--predict-link {}: expected different links", text);
  return links;
}

std::string unpredicted_fault(const std::string& faults) {
  const std::string left = only_faults(
      faults, [](const Fault& fault) { return fault.kind != Fault::Kind::slow && fault.kind != Fault::Kind::jitter; });
  return left.substr(0, left.find(' '));
}

StepPredictor::StepPredictor(std::vector<PredictLink> links, bool encrypt_given, const App& app)
    : links_(std::move(links)), encrypt_given_(encrypt_given), app_(app), fit_(bench::fit_of_host()) {
  worker::register_builtins(built_in_);
  // Hosts are alike, and a worker's processors serve its messages beside its computing.
  fit_.factors = {{"slowdown", 1}, {"deviation", 0}, {"sleep_s", 0}};
}

/// The row's job with each process on a host of its own: nothing shares memory, and the links are those of the cluster.
JobOptions StepPredictor::on_hosts(const Entry& entry) const {
  JobOptions job = entry.job;
  job.accumulate *= job.virtual_workers;
  job.virtual_workers = 1;
  job.link.clear();
  job.transport = "tcp";
  if (job.algorithm == "direct") job.algorithm = "auto";
  if (job.shard_group == "host") job.shard_group = "1";
  job.share_host_parameters = job.local_reduce = false;
  job.encrypt = job.encrypt || !encrypt_given_;
  return job;
}

/// Returns why the cost model cannot predict the row; "" if it may.
std::string StepPredictor::obstacle(const Entry& entry) const {
  if (!built_in_.strategies.contains(Spec::parse("--strategies", entry.job.strategy).name()))
    return "the cost model knows psring's own strategies only";
  if (const std::string fault = unpredicted_fault(entry.job.fault); !fault.empty())
    return fmt::format("the cost model does not know --fault {}", fault);
  if (entry.job.device != "cpu" && !sleeps(entry.job))
    return "a GPU's time to compute is not measured here; psring plan --tflops predicts such a job";
  const auto why = not_measured_.find(computing_of(on_hosts(entry)));
  return why == not_measured_.end() ? "" : why->second;
}

void StepPredictor::measure_computing(const JobOptions& job) {
  const Computing computing = computing_of(job);
  if (computing_.contains(computing) || not_measured_.contains(computing)) return;
  if (!fits_here(job, app_)) {
    not_measured_[computing] = "one process cannot hold the whole model, so its computing was not measured";
    return;
  }
  const auto model = app_.worker_registries().models.make(Spec::parse("--model", job.model));
  computing_.try_emplace(computing, *model, micro_batch_of(job), parse_dtype("--precision", job.precision),
                         job.threads);
}

void StepPredictor::measure(const std::vector<Row>& rows) {
  if (links_.empty()) return;
  const OtherLoad others;
  std::set<std::string> ways;
  std::set<std::string> updates;
  bool any_sleeps = false;
  for (const Row& row : rows) {
    if (!obstacle(row.entry).empty()) continue;
    const JobOptions job = on_hosts(row.entry);
    updates.insert(bench::update_line(Spec::parse("--optimizer", job.optimizer).name(),
                                      *optim::make_optimizer(app_.optimizers(), job)));
    if (!row.entry.kind->one_worker) ways.merge(ways_of(job, *row.entry.kind));
    if (sleeps(job))
      any_sleeps = true;
    else
      measure_computing(job);
  }
  if (updates.empty()) return;
  bench::Measured measured;
  bench::measure_updates(app_.optimizers(), measured, updates);
  bench::measure_aggregation(measured);
  if (!ways.empty()) bench::measure_messages(kMessageMeasure, measured, ways);
  fit_.lines = bench::fit_lines(measured);
  if (any_sleeps) fit_.factors["sleep_s"] = bench::measure_sleep();
  disturbed_ = disturbed_by(others.processors(), usable_processors());
}

std::string StepPredictor::measured() const {
  std::map<std::string, std::vector<std::string>> times;  // by model, type and threads
  for (const auto& [computing, passes] : computing_) {
    const auto& [model, batch, precision, threads] = computing;
    const std::string on = threads > 1 ? fmt::format(" on {} threads", threads) : "";
    times[fmt::format("{} in {}{}", model, precision, on)].push_back(
        fmt::format("{} in {:.4g} ms", count_of(batch, "sample"), 1e3 * passes.step_s()));
  }
  std::vector<std::string> parts;
  for (const auto& [what, each] : times) parts.push_back(fmt::format("{}: {}", what, fmt::join(each, ", ")));
  return fmt::format("{}", fmt::join(parts, "; "));
}

PredictedStep StepPredictor::predict(const JobOptions& job, const worker::StrategyKind& kind,
                                     std::span<const RowTraffic> rows, const PredictLink& at) const {
  const bench::Mesh mesh{.hosts = job.workers, .workers_per_host = 1, .within = at.link, .between = at.link};
  const auto passes = computing_.find(computing_of(job));
  const bench::PassTime time = [&](const bench::LayerPass& pass) {
    return passes == computing_.end() ? 0.0 : passes->second.seconds(pass);
  };
  const auto stages = bench::make_workloads(job, app_.worker_registries(), owners_of(job, kind, mesh), time, rows);
  const auto rule = optim::make_optimizer(app_.optimizers(), job);
  const bench::StepEstimate step =
      bench::estimate_step(job, kind, stages, mesh, bench::fitted_costs(fit_, job, kind, *rule, mesh));
  return {.step_s = step.step_s, .compute_s = step.compute_s, .exposed_s = step.exposed_s, .bound = step.bound};
}

std::vector<PredictedStep> StepPredictor::predict(const Entry& entry) const {
  std::vector<PredictedStep> steps;
  std::optional<std::vector<RowTraffic>> rows;
  for (const PredictLink& at : links_) {
    const JobOptions job = on_hosts(entry);
    PredictedStep step{.reason = obstacle(entry)};
    try {
      if (step.reason.empty()) {
        const bool exchanges_rows = entry.kind->has_servers() && has_tables(job, app_);
        if (!rows) rows = exchanges_rows ? job_memory(job, job.workers, app_).rows : std::vector<RowTraffic>();
        step = predict(job, *entry.kind, *rows, at);
      }
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::usage && error.kind() != ErrorKind::data) throw;
      step.reason = error.what();
    }
    step.link = at.text;
    step.encrypted = job.encrypt;
    step.disturbed = disturbed_;
    steps.push_back(std::move(step));
  }
  return steps;
}

}  // namespace psring::cli
