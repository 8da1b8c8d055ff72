// Exercise 09: repair the event list of a step of DDP into one of FSDP.
#include <algorithm>
#include <array>
#include <sstream>
#include <tuple>

#include <psring/cli/check/exercises.h>
#include <psring/common/base/text/text.h>

namespace psring::cli {
namespace {

constexpr std::size_t kUnits = 3;
constexpr std::size_t kMostWhole = 2;

/// A worker that goes through the list. Refuses the first event that cannot happen.
struct Walk {
  enum class Gradient : std::uint8_t { none, whole, owned, applied };
  struct Unit {
    bool whole = false;  ///< its parameters
    std::size_t gathers = 0;
    Gradient gradient = Gradient::none;
  };

  /// Reads the student's file, a line EVENT UNIT for each event; a # begins a comment.
  explicit Walk(const Submission& submission);

  void take(std::size_t line, const std::string& name, std::size_t number);

  std::array<Unit, kUnits> units;
  std::size_t forwards = 0;
  std::size_t backwards = 0;
  std::size_t most_whole = 0;  ///< the largest number of units that are whole at a time
  std::size_t most_whole_line = 0;
};

Walk::Walk(const Submission& submission) {
  LineReader lines(submission.file.string());
  std::size_t number = 0;
  std::vector<std::tuple<std::size_t, std::string, std::size_t>> events;
  for (std::string line; lines.next(line);) {
    ++number;
    std::istringstream words(line.substr(0, line.find('#')));
    std::string name, rest;
    std::size_t unit = kUnits;
    if (!(words >> name)) continue;
    if (!(words >> unit) || unit >= kUnits || words >> rest)
      refuse({"line {}: expected EVENT UNIT, with a unit from 0 to 2, got '{}'",
              "第 {} 行：应为 事件 单元，单元是 0 到 2，却是 '{}'"},
             number, line);
    events.emplace_back(number, name, unit);
  }
  for (const auto& [line, name, unit] : events) take(line, name, unit);
  for (std::size_t unit = 0; unit < kUnits; ++unit) {
    if (units[unit].gradient != Gradient::applied)
      refuse({"at the end unit {} has not been updated", "结束时单元 {} 没有更新"}, unit);
    if (units[unit].whole)
      refuse(
          {"at the end the parameters of unit {} are still whole: drop them", "结束时单元 {} 的参数仍然完整：请丢弃"},
          unit);
  }
}

void Walk::take(std::size_t line, const std::string& name, std::size_t number) {
  Unit& unit = units[number];
  const auto require = [&](bool holds, const Text& why) {
    if (!holds) refuse({"line {}, {} {}: {}", "第 {} 行，{} {}：{}"}, line, name, number, why);
  };
  const auto require_whole = [&] {
    require(unit.whole, {"the worker has only its own range of the parameters: gather the unit first",
                         "worker 只有自己的参数区间：先 gather 这个单元"});
  };
  if (name == "gather") {
    require(!unit.whole, {"its parameters are whole already", "它的参数已经完整"});
    unit.whole = true;
    ++unit.gathers;
  } else if (name == "drop") {
    require(unit.whole,
            {"its parameters are not whole, so there is nothing to drop", "它的参数不完整，没有可以丢弃的"});
    unit.whole = false;
  } else if (name == "forward") {
    require_whole();
    require(number == forwards++, {"forward runs from unit 0 to unit 2, each once", "前向从单元 0 到单元 2，各一次"});
  } else if (name == "backward") {
    require_whole();
    require(forwards == kUnits, {"backward begins after the forward of unit 2", "反向在单元 2 的前向之后开始"});
    require(number + ++backwards == kUnits,
            {"backward runs from unit 2 to unit 0, each once", "反向从单元 2 到单元 0，各一次"});
    unit.gradient = Gradient::whole;
  } else if (name == "reduce-scatter") {
    require(unit.gradient == Gradient::whole,
            {"backward has to complete its gradient first", "必须先由反向得到它的梯度"});
    unit.gradient = Gradient::owned;
  } else if (name == "update") {
    require(unit.gradient == Gradient::owned || unit.gradient == Gradient::applied,
            {"the worker does not have the mean of its range yet: reduce-scatter first",
             "worker 还没有自己区间的平均值：先 reduce-scatter"});
    require(unit.gradient == Gradient::owned, {"it was updated already", "它已经更新过"});
    require(!unit.whole, {"its whole parameters are still here, and would be old after the update: drop them first",
                          "完整的参数还在，更新之后就是旧值：先丢弃"});
    unit.gradient = Gradient::applied;
  } else {
    require(name != "all-reduce",
            {"an all-reduce leaves the whole mean at every worker, but a worker updates only its range: reduce-scatter",
             "all-reduce 让每个 worker 都得到整个平均值，但 worker 只更新自己的区间：reduce-scatter"});
    require(false, {"there is no such event; there are gather, drop, forward, backward, reduce-scatter and update",
                    "没有这种事件；只有 gather、drop、forward、backward、reduce-scatter 和 update"});
  }
  const auto whole =
      static_cast<std::size_t>(std::count_if(units.begin(), units.end(), [](const Unit& each) { return each.whole; }));
  if (whole > most_whole) {
    most_whole = whole;
    most_whole_line = line;
  }
}

void check_memory(const Submission& submission) {
  const Walk walk(submission);
  if (walk.most_whole > kMostWhole)
    refuse({"at line {} the parameters of {} units are whole, as many as DDP keeps; at most {}: drop a unit "
            "after its pass",
            "第 {} 行时有 {} 个单元的参数完整，与 DDP 一样多；最多 {} 个：单元用完一遍就丢弃"},
           walk.most_whole_line, walk.most_whole, kMostWhole);
}

void check_gathers(const Submission& submission) {
  const Walk walk(submission);
  for (std::size_t unit = 0; unit < kUnits; ++unit)
    if (walk.units[unit].gathers > 2)
      refuse({"unit {} is gathered {} times; a step needs it twice, for forward and for backward",
              "单元 {} 收集了 {} 次；一步只需要两次：前向和反向"},
             unit, walk.units[unit].gathers);
}

}  // namespace

Exercise event_list_exercise() {
  return {9,
          "event-list",
          {"repair an event list into FSDP", "把事件列表改成 FSDP"},
          "start.txt",
          {{{"the list is a right step of FSDP", "列表是正确的一步 FSDP"},
            50,
            [](const Submission& submission) { const Walk walk(submission); }},
           {{"at most two units are whole at a time", "同时最多两个单元完整"}, 30, check_memory, 0},
           {{"no unit is gathered more than twice", "每个单元最多收集两次"}, 20, check_gathers, 0}}};
}

}  // namespace psring::cli
