#include <algorithm>
#include <map>
#include <set>

#include <psring/cli/entries.h>
#include <psring/common/base/error.h>

namespace psring::cli {
namespace {

std::string label_of(const std::string& strategy, const Sweep::Point& point, const std::set<std::string>& idle) {
  std::string label = strategy;
  const auto add = [&](const std::string& name, const char* shown) {
    const auto at = point.find(name);
    if (at != point.end() && !idle.contains("--" + name)) label += fmt::format(" {}={}", shown, at->second);
  };
  add("workers", "n");
  add("servers", "s");
  for (const auto& [name, value] : point)
    if (name != "workers" && name != "servers") add(name, name.c_str());
  return label;
}

/// A strategy's job at a point, and which flags it has no use for.
struct Resolved {
  Sweep::Point point;
  LeftOut left_out;
  JobOptions job;
};

}  // namespace

std::vector<Entry> make_entries(const JobFlags& flags, const std::vector<std::string>& strategies, Sweep& sweep,
                                const App& app) {
  std::vector<Entry> entries;
  std::map<Sweep::Point, LeftOut> unused;  // by all strategies so far
  for (const std::string& strategy : strategies) {
    if (std::count(strategies.begin(), strategies.end(), strategy) > 1)
      fail(ErrorKind::usage, "--strategies: '{}' stands there twice", strategy);
    const std::shared_ptr<const worker::StrategyKind> kind =
        app.worker_registries().strategies.make(Spec::parse("--strategies", strategy));
    std::vector<Resolved> points;
    std::set<std::string> idle;  // what is swept, but means nothing to this strategy
    sweep.for_each([&](const Sweep::Point& point) {
      Resolved resolved{.point = point, .left_out = {}, .job = {}};
      resolved.job = resolve(flags, strategy, *kind, &resolved.left_out, true);
      LeftOut& unused_here = unused.try_emplace(point, resolved.left_out).first->second;
      std::erase_if(unused_here, [&](const auto& flag) { return !resolved.left_out.contains(flag.first); });
      for (const auto& [flag, line] : resolved.left_out) idle.insert(flag);
      points.push_back(std::move(resolved));
    });
    for (Resolved& each : points) {
      Entry entry{label_of(strategy, each.point, idle), std::move(each.job), kind};
      // A strategy without servers does the same at every number of them, one without buckets at all their sizes.
      const auto same = [&](const Entry& other) {
        return other.label == entry.label || to_json(other.job) == to_json(entry.job);
      };
      if (std::any_of(entries.begin(), entries.end(), same)) continue;
      set_up(entry.job, app);
      entries.push_back(std::move(entry));
    }
  }
  for (const auto& [point, left_out] : unused)
    if (!left_out.empty()) throw Error(ErrorKind::usage, left_out.begin()->second);
  return entries;
}

std::optional<JobOptions> reference_of(const Entry& entry) {
  if (entry.kind->one_worker || entry.job.aggregate != "mean") return std::nullopt;
  const JobOptions defaults;
  JobOptions job = entry.job;
  job.virtual_workers = job.workers;
  job.workers = 1;
  job.servers = 0;
  job.strategy = "single";
  job.optimizer_on = defaults.optimizer_on;
  job.consistency = defaults.consistency;
  job.compress = defaults.compress;
  job.error_feedback = defaults.error_feedback;
  job.remedy = defaults.remedy;
  job.backup_workers = defaults.backup_workers;
  job.fault.clear();
  job.max_restarts = defaults.max_restarts;
  job.min_workers = defaults.min_workers;
  job.recovery = defaults.recovery;
  job.replicas = defaults.replicas;
  if (entry.kind->at_owner && job.accumulate > 1) job.accumulate_at = "owner";
  job.trace = false;
  job.checkpoint_every = defaults.checkpoint_every;
  job.checkpoint_keep = defaults.checkpoint_keep;
  job.server_device = defaults.server_device;
  job.share_gpu = defaults.share_gpu;
  job.cuda_graphs = defaults.cuda_graphs;
  job.transport = defaults.transport;
  job.algorithm = defaults.algorithm;
  job.tuning.clear();
  job.streams = defaults.streams;
  job.bucket_bytes = defaults.bucket_bytes;
  job.overlap = defaults.overlap;
  job.bucket_order = defaults.bucket_order;
  job.prefetch = defaults.prefetch;
  job.reshard_after_forward = defaults.reshard_after_forward;
  job.share_host_parameters = defaults.share_host_parameters;
  job.shard_group = defaults.shard_group;
  job.placement = defaults.placement;
  job.local_reduce = defaults.local_reduce;
  job.server_threads = defaults.server_threads;
  job.encrypt = false;
  job.link.clear();
  return job;
}

}  // namespace psring::cli
