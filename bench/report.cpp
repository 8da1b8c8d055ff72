#include <algorithm>

#include <fmt/format.h>
#include <stdlib.h>

#include <psring/bench/report.h>
#include <psring/common/base/median.h>
#include <psring/common/base/system/file.h>
#include <psring/common/base/system/processors.h>
#include <psring/common/base/text/error.h>
#include <psring/common/device/processor.h>

namespace psring::bench {

double Samples::median() const {
  check(!values.empty(), "the median of nothing");
  return psring::median(values);
}

double Samples::least() const { return *std::min_element(values.begin(), values.end()); }
double Samples::spread() const { return (*std::max_element(values.begin(), values.end()) - least()) / median(); }

double Samples::median_ratio(const Samples& other) const {
  check(values.size() == other.values.size(), "a ratio of other rounds");
  std::vector<double> ratios;
  for (std::size_t i = 0; i < values.size(); ++i) ratios.push_back(values[i] / other.values[i]);
  return psring::median(ratios);
}

std::string describe_machine() {
  double load = 0;
  ::getloadavg(&load, 1);
  return fmt::format("{}, {} cores, load average {:.1f} at the start", processor_model(), usable_processors(), load);
}

std::string short_bytes(std::size_t bytes) {
  for (const auto& [unit, shift] : {std::pair{'G', 30}, {'M', 20}, {'K', 10}})
    if (bytes % (std::size_t{1} << shift) == 0) return fmt::format("{}{}", bytes >> shift, unit);
  return std::to_string(bytes);
}

void write_json_file(const std::string& file, const std::string& text) { write_whole(file, text + "\n"); }

}  // namespace psring::bench
