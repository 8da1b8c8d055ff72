#include <algorithm>
#include <vector>

#include <fmt/format.h>
#include <version.h>

#include <psring/cli/plan/fit_of_link.h>

namespace psring::cli {

bench::Fit fit_of_program() {
  bench::Fit fit = bench::fit_of_host();
  fit.program = fmt::format("psring {} ({})", kVersion, kCommit);
  return fit;
}

void add_link(const LinkFigures& figures, bench::Fit& fit) {
  std::vector<bench::TimedSize> points;
  for (const auto& [bytes, time] : figures.one_way_s) points.push_back({bytes, time});
  fit.lines["link.peer"] = bench::fit_line(points, "byte");
  fit.lines["rate.peer"] = {.per_unit_s = 1 / std::min(figures.sending_bytes_per_s, figures.receiving_bytes_per_s),
                            .unit = "byte"};
}

}  // namespace psring::cli
