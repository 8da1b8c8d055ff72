#include <algorithm>
#include <cmath>
#include <string_view>

#include <psring/view/trace_waits.h>

namespace psring::view {
namespace {

/// Returns the process that a slice names: "wait for worker 1", "push_pull of worker 2, h.0".
std::string peer_in(const std::string& name, std::string_view before) {
  const std::size_t at = name.find(before);
  if (at == std::string::npos) return "";
  const std::size_t begin = at + before.size();
  return name.substr(begin, name.find(',', begin) - begin);
}

/// The process or stage that a wait is for: "worker 1", and "stage 1" in "gradient of stage 1".
std::string awaited_in(const std::string& name) {
  const std::string awaited = peer_in(name, " for ");
  const std::string owner = peer_in(awaited, " of ");
  return owner.empty() ? awaited : owner;
}

Interval span_of(const TraceEvent& event) { return {event.at(), event.end()}; }

/// Adds intervals to `sum` that `taken` does not have, and then has.
double add(std::vector<Interval>& taken, const std::vector<Interval>& list) {
  const std::vector<Interval> fresh = without(joined(list), taken);
  taken.insert(taken.end(), fresh.begin(), fresh.end());
  taken = joined(std::move(taken));
  return total(fresh);
}

}  // namespace

void WaitTimes::take(const TraceEvent& event) {
  if (event.phase != 'X' || event.thread != 0) return;
  const std::string word = event.name.substr(0, event.name.find(' '));
  if (event.process.starts_with("worker")) {
    if (word != "step" && word != "evaluate" && word != "wait" && word != "acquire") return;
    WorkerStep& own = workers_[event.process][event.step];
    if (word == "step")
      own.step = span_of(event);
    else if (word == "evaluate")
      own.evaluations.push_back(span_of(event));
    else if (const std::string peer = awaited_in(event.name); peer != event.process)
      own.waits[peer].push_back(span_of(event));
    else
      own.waits[""].push_back(span_of(event));  // for a thread of its own
  } else if (event.process.starts_with("server") && (word == "push" || word == "push_pull")) {
    servers_[event.process][event.step].pushes[event.unit].push_back({span_of(event), peer_in(event.name, " of ")});
  }
}

WaitTimes::Waits WaitTimes::waits_of(const WorkerStep& step) {
  Waits waits;
  std::vector<Interval> taken = joined(step.evaluations);
  const auto wait_for = [&](const std::string& peer, const std::vector<Interval>& list) {
    if (const double seconds = add(taken, clipped(list, *step.step)); seconds > 0) waits[peer] += seconds;
  };
  for (const auto& [peer, list] : step.waits)
    if (!peer.empty()) wait_for(peer, list);
  // Parameters are waited for in slices that name no process, around those that do.
  if (const auto unnamed = step.waits.find(""); unnamed != step.waits.end()) wait_for("", unnamed->second);
  return waits;
}

WaitTimes::Waits WaitTimes::waits_of(const ServerStep& step) {
  Waits waits;
  std::vector<Interval> taken;  // first: the server's work
  for (const auto& [unit, pushes] : step.pushes)
    for (const Push& push : pushes) taken.push_back(push.span);
  taken = joined(std::move(taken));
  for (const auto& [unit, pushes] : step.pushes) {
    const auto earlier = [](const Push& a, const Push& b) { return a.span.begin < b.span.begin; };
    const auto [first, last] = std::minmax_element(pushes.begin(), pushes.end(), earlier);
    if (first->worker == last->worker || first->span.end >= last->span.begin) continue;
    waits[last->worker] += add(taken, {{first->span.end, last->span.begin}});
  }
  return waits;
}

Json WaitTimes::json(const std::set<std::uint64_t>& detailed) const {
  Json lines = Json::array();
  const auto write = [&](const std::string& process, const Waits& sums, std::size_t steps) {
    for (const auto& [peer, seconds] : sums)
      lines.push_back({process, peer, std::round(seconds / static_cast<double>(steps) * 1e6) / 1e6});
  };
  for (const auto& [process, steps] : workers_) {
    Waits sums;
    std::size_t whole = 0;
    for (const auto& [number, step] : steps) {
      if (!step.step || !detailed.contains(number)) continue;
      ++whole;
      for (const auto& [peer, seconds] : waits_of(step)) sums[peer] += seconds;
    }
    if (whole > 0) write(process, sums, whole);
  }
  for (const auto& [process, steps] : servers_) {
    Waits sums;
    for (const auto& [number, step] : steps)
      for (const auto& [peer, seconds] : waits_of(step)) sums[peer] += seconds;
    write(process, sums, steps.size());
  }
  return lines;
}

}  // namespace psring::view
