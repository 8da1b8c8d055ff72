// Exercise 09: repair the event list of a step of DDP into one of FSDP.
#include <algorithm>
#include <array>
#include <sstream>

#include <psring/cli/check/exercises.h>
#include <psring/common/base/text.h>

namespace psring::cli {
namespace {

constexpr std::size_t kUnits = 3;
constexpr std::size_t kMostWhole = 2;

struct Event {
  std::size_t line;
  std::string name;
  std::size_t unit;
};

std::vector<Event> read_events(const Submission& submission) {
  std::vector<Event> events;
  LineReader lines(submission.file.string());
  std::size_t number = 0;
  for (std::string line; lines.next(line);) {
    ++number;
    std::istringstream words(line.substr(0, line.find('#')));
    Event event{number, "", kUnits};
    std::string rest;
    if (!(words >> event.name)) continue;
    if (!(words >> event.unit) || event.unit >= kUnits || words >> rest)
      submission.refuse({"line {}: expected EVENT UNIT, with a unit from 0 to 2, got '{}'",
                         "第 {} 行：应为 事件 单元，单元是 0 到 2，却是 '{}'"},
                        number, line);
    events.push_back(std::move(event));
  }
  return events;
}

/// A worker that goes through the list.
class Walk {
 public:
  explicit Walk(const Submission& submission) : submission_(submission) {}

  void take(const Event& event) {
    Unit& unit = units_[event.unit];
    if (event.name == "gather") {
      if (unit.whole) refuse(event, {"its parameters are whole already", "它的参数已经完整"});
      unit.whole = true;
      ++unit.gathers;
    } else if (event.name == "drop") {
      if (!unit.whole)
        refuse(event, {"its parameters are not whole, so there is nothing to drop", "它的参数不完整，没有可以丢弃的"});
      unit.whole = false;
    } else if (event.name == "forward") {
      require_whole(event);
      if (event.unit != forwards_)
        refuse(event, {"forward runs from unit 0 to unit 2, each once", "前向从单元 0 到单元 2，各一次"});
      ++forwards_;
    } else if (event.name == "backward") {
      backward(event);
    } else if (event.name == "reduce-scatter") {
      if (unit.gradient != Gradient::whole)
        refuse(event, {"backward has to complete its gradient first", "必须先由反向得到它的梯度"});
      unit.gradient = Gradient::owned;
    } else if (event.name == "update") {
      update(event);
    } else if (event.name == "all-reduce") {
      refuse(event, {"an all-reduce leaves the whole mean at every worker, but a worker updates only its range: "
                     "reduce-scatter",
                     "all-reduce 让每个 worker 都得到整个平均值，但 worker 只更新自己的区间：reduce-scatter"});
    } else {
      refuse(event, {"there is no such event; there are gather, drop, forward, backward, reduce-scatter and update",
                     "没有这种事件；只有 gather、drop、forward、backward、reduce-scatter 和 update"});
    }
    const auto whole = static_cast<std::size_t>(
        std::count_if(units_.begin(), units_.end(), [](const Unit& each) { return each.whole; }));
    if (whole > most_whole_) {
      most_whole_ = whole;
      most_whole_line_ = event.line;
    }
  }

  void finish() const {
    for (std::size_t unit = 0; unit < kUnits; ++unit) {
      if (units_[unit].gradient != Gradient::applied)
        submission_.refuse({"at the end unit {} has not been updated", "结束时单元 {} 没有更新"}, unit);
      if (units_[unit].whole)
        submission_.refuse(
            {"at the end the parameters of unit {} are still whole: drop them", "结束时单元 {} 的参数仍然完整：请丢弃"},
            unit);
    }
  }

  std::size_t most_whole() const { return most_whole_; }
  std::size_t most_whole_line() const { return most_whole_line_; }
  std::size_t gathers(std::size_t unit) const { return units_[unit].gathers; }

 private:
  enum class Gradient : std::uint8_t { none, whole, owned, applied };
  struct Unit {
    bool whole = false;
    std::size_t gathers = 0;
    Gradient gradient = Gradient::none;
  };

  [[noreturn]] void refuse(const Event& event, const Text& why) const {
    submission_.refuse({"line {}, {} {}: {}", "第 {} 行，{} {}：{}"}, event.line, event.name, event.unit,
                       why.in(submission_.language));
  }
  void require_whole(const Event& event) const {
    if (!units_[event.unit].whole)
      refuse(event, {"the worker has only its own range of the parameters: gather the unit first",
                     "worker 只有自己的参数区间：先 gather 这个单元"});
  }
  void backward(const Event& event) {
    require_whole(event);
    if (forwards_ < kUnits)
      refuse(event, {"backward begins after the forward of unit 2", "反向在单元 2 的前向之后开始"});
    if (event.unit + 1 + backwards_ != kUnits)
      refuse(event, {"backward runs from unit 2 to unit 0, each once", "反向从单元 2 到单元 0，各一次"});
    ++backwards_;
    units_[event.unit].gradient = Gradient::whole;
  }
  void update(const Event& event) {
    Unit& unit = units_[event.unit];
    if (unit.gradient == Gradient::none || unit.gradient == Gradient::whole)
      refuse(event, {"the worker does not have the mean of its range yet: reduce-scatter first",
                     "worker 还没有自己区间的平均值：先 reduce-scatter"});
    if (unit.gradient == Gradient::applied) refuse(event, {"it was updated already", "它已经更新过"});
    if (unit.whole)
      refuse(event, {"its whole parameters are still here, and would be old after the update: drop them first",
                     "完整的参数还在，更新之后就是旧值：先丢弃"});
    unit.gradient = Gradient::applied;
  }

  const Submission& submission_;
  std::array<Unit, kUnits> units_;
  std::size_t forwards_ = 0;
  std::size_t backwards_ = 0;
  std::size_t most_whole_ = 0;
  std::size_t most_whole_line_ = 0;
};

Walk walk(const Submission& submission) {
  Walk walk(submission);
  for (const Event& event : read_events(submission)) walk.take(event);
  walk.finish();
  return walk;
}

void check_memory(const Submission& submission) {
  const Walk walked = walk(submission);
  if (walked.most_whole() > kMostWhole)
    submission.refuse({"at line {} the parameters of {} units are whole, as many as DDP keeps; at most {}: drop a unit "
                       "after its pass",
                       "第 {} 行时有 {} 个单元的参数完整，与 DDP 一样多；最多 {} 个：单元用完一遍就丢弃"},
                      walked.most_whole_line(), walked.most_whole(), kMostWhole);
}

void check_gathers(const Submission& submission) {
  const Walk walked = walk(submission);
  for (std::size_t unit = 0; unit < kUnits; ++unit)
    if (walked.gathers(unit) > 2)
      submission.refuse({"unit {} is gathered {} times; a step needs it twice, for forward and for backward",
                         "单元 {} 收集了 {} 次；一步只需要两次：前向和反向"},
                        unit, walked.gathers(unit));
}

}  // namespace

Exercise event_list_exercise() {
  return {9,
          "event-list",
          {"repair an event list into FSDP", "把事件列表改成 FSDP"},
          "start.txt",
          {{{"the list is a right step of FSDP", "列表是正确的一步 FSDP"},
            50,
            [](const Submission& submission) { walk(submission); }},
           {{"at most two units are whole at a time", "同时最多两个单元完整"}, 30, check_memory, {0}},
           {{"no unit is gathered more than twice", "每个单元最多收集两次"}, 20, check_gathers, {0}}}};
}

}  // namespace psring::cli
