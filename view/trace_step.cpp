#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <psring/common/base/median.h>
#include <psring/common/base/text/json.h>
#include <psring/view/intervals.h>
#include <psring/view/report_parts.h>
#include <psring/view/trace_events.h>
#include <psring/view/trace_waits.h>

namespace psring::view {
namespace {

constexpr std::size_t kMostSlices = 4000;
constexpr std::size_t kMostTransfers = 2000;
constexpr std::size_t kMostArrows = 1000;
constexpr std::size_t kMostPoints = 2000;

/// Returns the kind of a slice of the timeline; "" if the slice only encloses others.
std::string kind_of(const TraceEvent& event) {
  if (event.thread != 0) return "device";
  const std::string word = event.name.substr(0, event.name.find(' '));
  for (const char* kind : {"forward", "backward", "update", "wait"})
    if (word == kind) return word;
  if (word == "acquire") return "wait";  // for the parameters of a unit
  return event.process.starts_with("server") && word != "wait" ? "serve" : "";
}

/// The intervals of one worker's step.
struct StepTimes {
  std::optional<Interval> step;
  std::map<std::string, std::vector<Interval>> slices;  ///< by kind
  std::vector<Interval> transfers;

  /// A worker that sleeps in place of computing has waits alone.
  bool has_details() const { return !slices.empty(); }
};

using Steps = std::map<std::string, std::map<std::uint64_t, StepTimes>>;  ///< by worker, by step

/// Calls `body` with each transfer, from its begin to its end.
class Transfers {
 public:
  template <class Body>
  void take(const TraceEvent& event, const Body& body) {
    const std::string key = event.process + "/" + event.id;
    if (event.phase == 'b') open_[key] = event.at();
    const auto found = open_.find(key);
    if (event.phase != 'e' || found == open_.end()) return;
    body(Interval{found->second, event.at()});
    open_.erase(found);
  }

 private:
  std::map<std::string, double> open_;
};

Steps read_steps(const std::filesystem::path& folder, WaitTimes& waits) {
  Steps steps;
  Transfers transfers;
  const auto wanted = [](char phase, double) { return phase == 'X' || phase == 'b' || phase == 'e'; };
  for_each_trace_event(folder, wanted, [&](const TraceEvent& event) {
    waits.take(event);
    if (!event.process.starts_with("worker")) return;
    if (event.phase == 'X' && event.thread == 0) {
      StepTimes& own = steps[event.process][event.step];
      const Interval span{event.at(), event.end()};
      const std::string kind = kind_of(event);
      if (event.name == "step") own.step = span;
      if (!kind.empty()) own.slices[kind].push_back(span);
    }
    transfers.take(event, [&](const Interval& span) { steps[event.process][event.step].transfers.push_back(span); });
  });
  for (auto& [process, own] : steps) std::erase_if(own, [](const auto& step) { return !step.second.step; });
  std::erase_if(steps, [](const auto& worker) { return worker.second.empty(); });
  return steps;
}

/// The steps whose details are recorded. They are so at all workers, of which some may neither compute nor wait in one.
std::set<std::uint64_t> steps_with_details(const Steps& steps) {
  std::set<std::uint64_t> numbers;
  for (const auto& [process, own] : steps)
    for (const auto& [number, step] : own)
      if (step.has_details()) numbers.insert(number);
  return numbers;
}

Json times_of(const std::string& process, const std::map<std::uint64_t, StepTimes>& steps,
              const std::set<std::uint64_t>& detailed) {
  std::map<std::string, std::vector<double>> times;
  for (const auto& [number, own] : steps) {
    if (!detailed.empty() && !detailed.contains(number)) continue;
    const auto within = [&](const std::vector<Interval>& list) { return joined(clipped(list, *own.step)); };
    const auto slices = [&](const char* kind) {
      const auto found = own.slices.find(kind);
      return within(found == own.slices.end() ? std::vector<Interval>() : found->second);
    };
    const std::vector<Interval> waits = slices("wait");
    const std::vector<Interval> in_flight = within(own.transfers);
    times["step_s"].push_back(own.step->end - own.step->begin);
    times["waiting_s"].push_back(total(waits));
    times["in_flight_s"].push_back(total(in_flight));
    double hidden = 0;
    for (const char* kind : {"forward", "backward", "update"}) {
      const std::vector<Interval> spans = without(slices(kind), waits);
      times[std::string(kind) + "_s"].push_back(total(spans));
      hidden += common_time(in_flight, spans);
    }
    times["hidden_s"].push_back(hidden);
  }
  Json json = {{"process", process}, {"steps", times["step_s"].size()}};
  for (const char* name : {"step_s", "forward_s", "backward_s", "update_s", "waiting_s", "hidden_s", "in_flight_s"})
    json[name] = median(times[name]);
  return json;
}

/// Returns the number of a step and its span at all workers: of the steps whose details are recorded, the one whose
/// duration at the first worker is nearest to the median of all steps.
std::pair<std::uint64_t, Interval> typical_step(const Steps& steps, const std::set<std::uint64_t>& detailed) {
  const auto& own_steps = steps.begin()->second;
  const auto duration_of = [](const StepTimes& own) { return own.step->end - own.step->begin; };
  std::vector<double> durations;
  for (const auto& [number, own] : own_steps) durations.push_back(duration_of(own));
  const double typical = median(std::move(durations));
  const auto distance = [&](const auto& step) {
    return std::pair(!detailed.contains(step.first), std::abs(duration_of(step.second) - typical));
  };
  const std::uint64_t number = std::ranges::min_element(own_steps, {}, distance)->first;
  Interval span = *steps.begin()->second.at(number).step;
  const double longest = 3 * (span.end - span.begin);  // workers that do not wait for each other may be far apart
  for (const auto& [process, own] : steps) {
    const auto found = own.find(number);
    if (found == own.end()) continue;
    const Interval& other = *found->second.step;
    const Interval both{std::min(span.begin, other.begin), std::max(span.end, other.end)};
    if (both.end - both.begin <= longest) span = both;
  }
  return {number, span};
}

/// Rounds to microseconds.
double rounded(double value) { return std::round(value * 1e6) / 1e6; }

/// Collects the events of one step.
class StepFigures {
 public:
  explicit StepFigures(const Interval& span) : span_(span) {}

  void take(const TraceEvent& event) {
    if (event.phase == 'X') take_slice(event);
    if (event.phase == 'C') take_counter(event);
    if (event.phase == 's' || event.phase == 'f') take_frame(event);
    transfers_.take(event, [&](const Interval& span) {
      if (!overlaps(span)) return;
      add(transfer_list_, kMostTransfers,
          {event.process, event.name, rounded(span.begin - span_.begin), rounded(span.end - span.begin), event.bytes});
    });
  }

  void write(Json& json) {
    json["slices"] = std::move(slices_);
    json["transfers"] = std::move(transfer_list_);
    json["whole_units"] = std::move(whole_units_);
    json["arrows"] = std::move(arrows_);
    json["left_out"] = left_out_;
  }

 private:
  bool overlaps(const Interval& span) const { return span.begin < span_.end && span.end > span_.begin; }

  void add(Json& list, std::size_t most, Json item) {
    if (list.size() < most)
      list.push_back(std::move(item));
    else
      ++left_out_;
  }

  void take_slice(const TraceEvent& event) {
    const std::string kind = kind_of(event);
    if (kind.empty() || !overlaps({event.at(), event.end()})) return;
    const std::string text = kind == "serve" || kind == "device" || kind == "wait" ? event.name : event.unit;
    add(slices_, kMostSlices,
        {event.process, kind, text, rounded(event.at() - span_.begin), rounded(event.end() - event.at())});
  }

  /// The last value before the step is the value at its beginning.
  void take_counter(const TraceEvent& event) {
    if (event.at() > span_.end) return;
    Json& own = whole_units_[event.process];
    const double at = rounded(std::max(0.0, event.at() - span_.begin));
    if (own.is_null() || event.at() < span_.begin)
      own = {{"at", Json::array()}, {"parameters", Json::array()}, {"gradients", Json::array()}};
    if (own["at"].size() >= kMostPoints) {
      ++left_out_;
      return;
    }
    own["at"].push_back(at);
    own["parameters"].push_back(event.parameters);
    own["gradients"].push_back(event.gradients);
  }

  void take_frame(const TraceEvent& event) {
    if (event.at() < span_.begin || event.at() > span_.end) return;
    const auto [found, first] = frames_.try_emplace(event.id, event);
    if (first) return;
    const TraceEvent& left = event.phase == 'f' ? found->second : event;
    const TraceEvent& arrived = event.phase == 'f' ? event : found->second;
    add(arrows_, kMostArrows,
        {event.name, left.process, rounded(left.at() - span_.begin), arrived.process,
         rounded(arrived.at() - span_.begin)});
    frames_.erase(found);
  }

  const Interval span_;
  Json slices_ = Json::array();
  Json transfer_list_ = Json::array();
  Json whole_units_ = Json::object();
  Json arrows_ = Json::array();
  Transfers transfers_;
  std::map<std::string, TraceEvent> frames_;  ///< with one end so far
  std::size_t left_out_ = 0;
};

}  // namespace

Json trace_figures(const std::filesystem::path& folder) {
  WaitTimes waits;
  const Steps steps = read_steps(folder, waits);
  if (steps.empty()) return {};
  const std::set<std::uint64_t> detailed = steps_with_details(steps);
  const auto [number, span] = typical_step(steps, detailed);
  Json json = {{"step", number}, {"duration_s", rounded(span.end - span.begin)}};
  StepFigures figures(span);
  const double before = span.begin - 3 * (span.end - span.begin);  // what began then may reach into the step
  const auto wanted = [&](char phase, double at) { return phase != 'i' && at >= before && at <= span.end; };
  for_each_trace_event(folder, wanted, [&](const TraceEvent& event) { figures.take(event); });
  figures.write(json);
  json["workers"] = Json::array();
  for (const auto& [process, own] : steps) json["workers"].push_back(times_of(process, own, detailed));
  json["waits"] = waits.json(detailed);
  return json;
}

}  // namespace psring::view
