#include <algorithm>
#include <map>
#include <set>

#include <psring/cli/entries.h>
#include <psring/cli/resolve.h>
#include <psring/cli/set_up.h>
#include <psring/common/base/error.h>
#include <psring/common/proc/options/table.h>
#include <psring/worker/model/parallel/schedule.h>

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

/// A word of --strategies: "zero3", or axes of a mesh and a strategy along the data axis: "pp:2:1f1b+ddp", "tp:2".
struct Word {
  std::string strategy = "ddp";
  options::Given axes;  ///< options that the word gives
};

void add_axis(const std::string& text, const std::string& part, Word& word) {
  const auto refuse = [&] {
    fail(ErrorKind::usage, "--strategies: expected tp:N, pp:N, pp:N:gpipe or pp:N:1f1b, got '{}' in '{}'", part, text);
  };
  const bool stages = part.starts_with("pp:");
  const std::string rest = part.substr(3);
  const std::size_t colon = rest.find(':');
  const std::string count = rest.substr(0, colon);
  if (count.empty() || count.find_first_not_of("0123456789") != std::string::npos) refuse();
  if (!word.axes.emplace(stages ? "pipeline" : "tensor", count).second) refuse();
  if (colon == std::string::npos) return;
  if (!stages) refuse();
  worker::parse_pipeline_schedule(word.axes["pipeline-schedule"] = rest.substr(colon + 1));
}

/// Without a strategy, a mesh is one copy of the model.
Word parse_word(const std::string& text, const options::Given& given) {
  Word word;
  bool named = false;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find('+', begin), text.size());
    const std::string part = text.substr(begin, end - begin);
    begin = end + 1;
    if (part.starts_with("pp:") || part.starts_with("tp:")) {
      add_axis(text, part, word);
      continue;
    }
    if (named) fail(ErrorKind::usage, "--strategies: '{}' names two strategies", text);
    named = true;
    word.strategy = part;
  }
  for (const char* flag : {"tensor", "pipeline", "pipeline-schedule"})
    if (!word.axes.empty() && given.contains(flag))
      fail(ErrorKind::usage, "--{} with --strategies {}: give the mesh in one of them", flag, text);
  if (!named) {
    const auto size = [&](const char* axis) {
      const auto found = word.axes.find(axis);
      return found == word.axes.end() ? 1 : options::whole_number("--strategies", found->second);
    };
    word.axes["workers"] = std::to_string(size("tensor") * size("pipeline"));
  }
  return word;
}

}  // namespace

std::vector<Entry> make_entries(const options::Given& given, const std::vector<std::string>& strategies, Sweep& sweep,
                                const App& app) {
  std::vector<Entry> entries;
  std::map<Sweep::Point, LeftOut> unused;  // options that all strategies so far leave out
  for (const std::string& strategy : strategies) {
    if (std::count(strategies.begin(), strategies.end(), strategy) > 1)
      fail(ErrorKind::usage, "--strategies: '{}' is listed twice", strategy);
    const Word word = parse_word(strategy, given);
    const std::shared_ptr<const worker::StrategyKind> kind =
        app.worker_registries().strategies.make(Spec::parse("--strategies", word.strategy));
    std::vector<Resolved> points;
    std::set<std::string> idle;  // swept options that this strategy leaves out
    sweep.for_each([&](const Sweep::Point& point) {
      Resolved resolved{.point = point, .left_out = {}, .job = {}};
      options::Given all = word.axes;
      all.insert(given.begin(), given.end());
      resolved.job = resolve(all, word.strategy, *kind, &resolved.left_out, true);
      LeftOut& unused_here = unused.try_emplace(point, resolved.left_out).first->second;
      std::erase_if(unused_here, [&](const auto& flag) { return !resolved.left_out.contains(flag.first); });
      for (const auto& [flag, line] : resolved.left_out) idle.insert(flag);
      points.push_back(std::move(resolved));
    });
    // An option that only some points leave out tells the others apart.
    const bool clash = any_clash(strategy, points, idle);
    for (Resolved& each : points) {
      Entry entry{label_of(strategy, each.point, clash ? names_of(each.left_out) : idle), std::move(each.job), kind};
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

std::optional<JobOptions> reference_of(const Entry& entry) {
  if (entry.kind->one_worker || entry.job.aggregate != "mean") return std::nullopt;
  JobOptions job = entry.job;
  for (const options::Group& group : options::groups())
    for (const options::Option& option : group.options)
      if (option.exchange_only) options::reset(job, option);
  job.virtual_workers = entry.job.data_workers();
  job.workers = 1;
  job.servers = 0;
  job.strategy = "single";
  if (entry.kind->at_owner && job.accumulate > 1) job.accumulate_at = "owner";
  return job;
}

}  // namespace psring::cli
