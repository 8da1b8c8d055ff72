#include <cmath>

#include <catch2/catch.hpp>

#include <psring/cli/plan/plan_crossings.h>
#include <psring/cli/plan/plan_sweep.h>
#include <psring/cli/text_table.h>
#include <psring/common/base/text/error.h>

namespace psring::cli {
namespace {

using Catch::WithinRel;
using Texts = std::vector<std::string>;

TEST_CASE("a sweep doubles, or lists") {
  CHECK(parse_plan_sweep("hosts=1..12").values == Texts{"1", "2", "4", "8"});
  CHECK(parse_plan_sweep("bucket=1M..4M").values == Texts{"1M", "2M", "4M"});
  CHECK(parse_plan_sweep("link-between=1gbit..4gbit").values == Texts{"1gbit", "2gbit", "4gbit"});
  CHECK(parse_plan_sweep("servers=1,4,n").values == Texts{"1", "4", "n"});
  CHECK(parse_plan_sweep("link-between=1gbit,1ms;10gbit,20us").values == Texts{"1gbit,1ms", "10gbit,20us"});
  for (const char* text : {"", "hosts", "hosts=", "hosts=1,,2", "hosts=4..1", "hosts=0..4", "bucket=1M..4K", "lr=1,2",
                           "workers=1,2", "hosts=1..1e30", "strategy=ps,ddp"})
    CHECK_THROWS_AS(parse_plan_sweep(text), Error);
}

TEST_CASE("swept values have places on an axis") {
  CHECK(parse_plan_sweep("hosts=1,3,9").positions() == std::vector<double>{1, 3, 9});
  CHECK(parse_plan_sweep("bucket=64K,1M").positions() == std::vector<double>{65536, 1048576});
  CHECK(parse_plan_sweep("link-between=500mbit,1ms;2.5Gbit,1ms").positions() == std::vector<double>{5e8, 2.5e9});
  CHECK(parse_plan_sweep("memory=24G,80G").positions() == std::vector<double>{24.0 * (1 << 30), 80.0 * (1 << 30)});
  CHECK(parse_plan_sweep("compress=none,int8,top-k").positions() == std::vector<double>{0, 1, 2});
  CHECK(parse_plan_sweep("hosts=8,4").positions() == std::vector<double>{0, 1});  // not in order
}

PlanRow row(const std::string& series, double step_s, std::size_t hosts) {
  PlanRow row{.label = series, .series = {series}, .hosts = hosts};
  row.step.step_s = step_s;
  row.samples_per_s = 1 / step_s;
  return row;
}

TEST_CASE("curves cross where their logarithms do") {
  // One server's step grows with the hosts, a ring's is constant: equal at 4 hosts.
  std::vector<PlanPoint> points;
  for (const double x : {1.0, 2.0, 8.0, 16.0}) {
    PlanPoint point{.x = x};
    point.plan.rows = {row("ps s=1", x, 1), row("ddp", 4, 1), row("copy", 4, 1)};
    if (x < 16) point.plan.rows.push_back(row("gone", 3, 1));
    points.push_back(std::move(point));
  }
  const auto found = find_crossings(points);
  std::size_t of_ddp = 0;
  for (const PlanCrossing& crossing : found) {
    if (crossing.before != "ps s=1" || crossing.after != "ddp") continue;
    ++of_ddp;
    CHECK(crossing.point == 1);
    CHECK_THAT(crossing.x, WithinRel(4.0, 1e-9));
    CHECK_THAT(crossing.y, WithinRel(crossing.of == PlanCrossing::Of::step_s ? 4.0 : 0.25, 1e-9));
  }
  CHECK(of_ddp == 2);            // in both figures
  CHECK(found.size() == 2 * 3);  // equal curves, and curves that begin together, do not cross
}

TEST_CASE("Chinese takes two columns") {
  CHECK(columns_of("ab") == 2);
  CHECK(columns_of("每步 ms") == 7);
  CHECK(columns_of("—≈✓") == 3);
  CHECK(wrapped("甲乙丙丁戊", 4, 0) == "甲乙\n丙丁\n戊\n");
  TextTable table({"策略", "主机"});
  table.add({"ddp", "16"});
  CHECK(table.plain() == "策略 主机\n---------\nddp    16\n");
}

}  // namespace
}  // namespace psring::cli
