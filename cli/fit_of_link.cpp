#include <algorithm>
#include <string>
#include <thread>
#include <vector>

#include <fmt/format.h>
#include <unistd.h>
#include <version.h>

#include <psring/cli/fit_of_link.h>
#include <psring/common/device/processor.h>

namespace psring::cli {
namespace {

std::string host_name() {
  std::string name(256, '\0');
  if (::gethostname(name.data(), name.size() - 1) != 0) return "?";
  return name.substr(0, name.find('\0'));
}

}  // namespace

bench::Fit fit_of_host() {
  return {.program = fmt::format("psring {} ({})", kVersion, kCommit),
          .host = host_name(),
          .processor = describe_processor(),
          .processors = std::thread::hardware_concurrency()};
}

void add_link(const LinkFigures& figures, bench::Fit& fit) {
  std::vector<bench::TimedSize> points;
  for (const auto& [bytes, time] : figures.one_way_s) points.push_back({bytes, time});
  fit.lines["link.peer"] = bench::fit_line(points, "byte");
  fit.lines["rate.peer"] = {.per_unit_s = 1 / std::min(figures.sending_bytes_per_s, figures.receiving_bytes_per_s),
                            .unit = "byte"};
}

}  // namespace psring::cli
