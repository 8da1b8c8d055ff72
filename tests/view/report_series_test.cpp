#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include <psring/common/base/text/json.h>
#include <psring/view/series.h>
#include <psring/view/trace_waits.h>

namespace {

using psring::Json;
using psring::view::lag_columns;
using psring::view::StepEnd;
using psring::view::TraceEvent;
using psring::view::WaitTimes;

TraceEvent slice(const char* process, const char* name, double at, double end, const char* unit = "") {
  return {.phase = 'X',
          .name = name,
          .process = process,
          .start = psring::from_seconds(at),
          .duration = psring::from_seconds(end - at),
          .step = 3,
          .unit = unit};
}

std::vector<StepEnd> steps_of(std::uint64_t worker, double begin, double each, std::uint64_t count) {
  std::vector<StepEnd> ends;
  for (std::uint64_t step = 0; step < count; ++step)
    ends.push_back(
        {.worker = worker, .step = step, .time_s = begin + each * (static_cast<double>(step) + 1), .step_s = each});
  return ends;
}

std::vector<int> column(const Json& columns, const char* worker) {
  return columns[worker]["lag"].get<std::vector<int>>();
}

}  // namespace

TEST_CASE("lag is a worker's step minus the steps of the slowest, whatever their own clocks say") {
  // Worker 1 takes three times as long, and its process began 7 s earlier.
  std::vector<StepEnd> ends = steps_of(0, 0, 1, 6);
  for (const StepEnd& end : steps_of(1, 7, 3.5, 6)) ends.push_back(end);
  const Json columns = lag_columns(ends);
  CHECK(column(columns, "worker 0") == std::vector<int>{0, 1, 2, 2, 3, 4});
  CHECK(columns["worker 0"]["time_s"].get<std::vector<double>>() == std::vector<double>{1, 2, 3, 4, 5, 6});
  CHECK(column(columns, "worker 1") == std::vector<int>(6, 0));
}

TEST_CASE("a worker that begins after another one has ended has a lag, too") {
  std::vector<StepEnd> ends = steps_of(0, 0, 0.001, 3);
  for (const StepEnd& end : steps_of(1, 0, 1, 3)) ends.push_back(end);
  for (const StepEnd& end : steps_of(2, 0, 2.5, 3)) ends.push_back(end);
  const Json columns = lag_columns(ends);
  CHECK(column(columns, "worker 0") == std::vector<int>{0, 1, 2});
  CHECK(column(columns, "worker 1") == std::vector<int>{0, 1, 1});
  CHECK(column(columns, "worker 2") == std::vector<int>{0, 0, 0});
}

TEST_CASE("lag begins anew when workers meet again") {
  std::vector<StepEnd> ends = {{0, 0, 0, 1, 1}, {0, 0, 1, 2, 1}, {0, 1, 0, 2.5, 2.5}};
  for (const StepEnd& end : std::vector<StepEnd>{
           {1, 0, 2, 11, 1}, {1, 0, 3, 12, 1}, {1, 1, 1, 1.5, 1.5}, {1, 1, 2, 3, 1.5}, {1, 1, 3, 4.5, 1.5}})
    ends.push_back(end);
  const Json columns = lag_columns(ends);
  CHECK(column(columns, "worker 0") == std::vector<int>{0, 1, 1, 1});
  CHECK(columns["worker 0"]["time_s"].get<std::vector<double>>() == std::vector<double>{1, 2, 3.5, 4.5});
  CHECK(column(columns, "worker 1") == std::vector<int>{0, 0, 0, 0});
  CHECK(lag_columns({}).size() == 0);
}

TEST_CASE("many steps become 200 points, each the largest of its group") {
  std::vector<StepEnd> ends = steps_of(0, 0, 0.5, 1000);
  for (const StepEnd& end : steps_of(1, 0, 5, 1000)) ends.push_back(end);
  const Json columns = lag_columns(ends);
  REQUIRE(column(columns, "worker 0").size() == 200);
  CHECK(column(columns, "worker 0").back() >= 899);
  CHECK(column(columns, "worker 0").back() <= 900);
}

TEST_CASE("a worker's waits are told apart by the process that it waits for") {
  WaitTimes times;
  times.take(slice("worker 0", "step", 0, 10));
  times.take(slice("worker 0", "acquire h.0", 1, 5, "h.0"));
  times.take(slice("worker 0", "wait for worker 1", 2, 4));
  times.take(slice("worker 0", "wait for worker 2", 6, 7));
  times.take(slice("worker 0", "evaluate", 8, 10));
  times.take(slice("worker 0", "wait for worker 2", 8, 9));
  times.take(slice("worker 1", "wait for worker 0", 0, 1));  // the step is not whole
  CHECK(times.json({3}) ==
        Json::parse(R"([["worker 0", "", 2.0], ["worker 0", "worker 1", 2.0], ["worker 0", "worker 2", 1.0]])"));
}

TEST_CASE("a server waits for the worker whose push of a unit comes last, except while it works") {
  WaitTimes times;
  times.take(slice("server 0", "push_pull of worker 0, h.0", 0, 1, "h.0"));
  times.take(slice("server 0", "push_pull of worker 1, h.0", 9, 10, "h.0"));
  times.take(slice("server 0", "push_pull of worker 1, h.1", 2, 3, "h.1"));
  times.take(slice("server 0", "push_pull of worker 0, h.1", 12, 13, "h.1"));
  times.take(slice("server 0", "layout of worker 0", 20, 30));
  // h.0: from 1 to 9, without 2 to 3; h.1: from 3 to 12, of which 10 to 12 is left.
  CHECK(times.json({}) == Json::parse(R"([["server 0", "worker 0", 2.0], ["server 0", "worker 1", 7.0]])"));
}
