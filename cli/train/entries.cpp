#include <algorithm>
#include <map>
#include <set>

#include <psring/cli/options/mesh_word.h>
#include <psring/cli/options/resolve.h>
#include <psring/cli/train/entries.h>
#include <psring/cli/train/set_up.h>
#include <psring/common/base/text/error.h>
#include <psring/common/proc/options/table.h>
#include <psring/worker/data/keyed/keyed_data.h>
#include <psring/worker/data_needs.h>

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

/// The job of a strategy at a point, and the options that the strategy leaves out.
struct Resolved {
  Sweep::Point point;
  LeftOut left_out;
  JobOptions job;
  options::Given given;
};

std::set<std::string> names_of(const LeftOut& left_out) {
  std::set<std::string> names;
  for (const auto& [flag, line] : left_out) names.insert(flag);
  return names;
}

/// Do different jobs have the same label without the idle options?
bool any_clash(const std::string& strategy, const std::vector<Resolved>& points, const std::set<std::string>& idle) {
  std::map<std::string, std::string> jobs;
  return std::any_of(points.begin(), points.end(), [&](const Resolved& each) {
    const std::string job = to_json(each.job);
    return jobs.emplace(label_of(strategy, each.point, idle), job).first->second != job;
  });
}

}  // namespace

std::vector<Entry> make_entries(const options::Given& given, const std::vector<std::string>& strategies, Sweep& sweep,
                                const App& app, bool loopback) {
  std::vector<Entry> entries;
  std::map<Sweep::Point, LeftOut> unused;  // options that all strategies so far leave out
  refuse_duplicates(strategies, given);
  for (const std::string& strategy : strategies) {
    MeshWord word = parse_mesh_word(strategy, given);
    if (word.one_copy) word.axes["workers"] = std::to_string(word.parts);
    const std::shared_ptr<const worker::StrategyKind> kind =
        worker::make_strategy_kind(app.worker_registries(), "--strategies", word.strategy, model_of(given));
    std::vector<Resolved> points;
    std::set<std::string> idle;  // swept options that this strategy leaves out
    sweep.for_each([&](const Sweep::Point& point) {
      Resolved resolved{.point = point, .left_out = {}, .job = {}, .given = {}};
      resolved.given = word.axes;
      resolved.given.insert(given.begin(), given.end());
      resolved.job = resolve(resolved.given, word.strategy, *kind, &resolved.left_out, loopback);
      LeftOut& unused_here = unused.try_emplace(point, resolved.left_out).first->second;
      std::erase_if(unused_here, [&](const auto& flag) { return !resolved.left_out.contains(flag.first); });
      for (const auto& [flag, line] : resolved.left_out) idle.insert(flag);
      points.push_back(std::move(resolved));
    });
    // An option that only some points leave out tells the others apart.
    const bool clash = any_clash(strategy, points, idle);
    for (Resolved& each : points) {
      Entry entry{label_of(strategy, each.point, clash ? names_of(each.left_out) : idle), std::move(each.job), kind,
                  std::move(each.given)};
      // Points that differ only in options which the strategy leaves out are one point.
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

std::vector<std::string> defaults_for_tables(std::vector<std::string> strategies, const options::Given& given,
                                             const App& app) {
  const worker::Registries& registries = app.worker_registries();
  if (registries.models.make(Spec::parse("--model", model_of(given)))->tables.empty()) return strategies;
  std::erase_if(strategies, [&](const std::string& strategy) {
    return !registries.strategies.make(Spec::parse("--strategies", strategy))->tables;
  });
  return strategies;
}

void require_data_for_tables(const options::Given& given, const App& app) {
  const std::string text = model_of(given);
  const auto model = app.worker_registries().models.make(Spec::parse("--model", text));
  if (!model->tables.empty() && !given.contains("data"))
    fail(ErrorKind::usage, "--model {}: its rows depend on the data: give --data {}", text,
         worker::keyed_data_for(worker::needs_of(*model, {})));
}

JobOptions one_process(const JobOptions& of) {
  JobOptions job = of;
  for (const options::Group& group : options::groups())
    for (const options::Option& option : group.options)
      if (option.exchange_only) options::reset(job, option);
  job.workers = 1;
  job.servers = 0;
  job.strategy = "single";
  return job;
}

std::optional<JobOptions> reference_of(const Entry& entry) {
  if (entry.kind->one_worker || entry.job.aggregate != "mean") return std::nullopt;
  JobOptions job = one_process(entry.job);
  job.virtual_workers = entry.job.data_workers();
  if (entry.kind->at_owner && job.accumulate > 1) job.accumulate_at = "owner";
  return job;
}

}  // namespace psring::cli
