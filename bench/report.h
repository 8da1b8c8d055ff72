#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace psring::bench {

/// One quantity, measured several times.
struct Samples {
  std::vector<double> values;

  double median() const;
  double least() const;
  /// (largest - least) / median
  double spread() const;
  /// Returns the median of the ratios to `other`, round by round; disturbances of a whole round cancel out.
  double median_ratio(const Samples& other) const;
};

/// Returns the first line of every report: "AMD EPYC, 2 cores, load 0.3".
std::string describe_machine();

/// Returns the shortest text that parse_bytes reads back: "4K", "1M".
std::string short_bytes(std::size_t bytes);

/// Writes text to a file. Throws data, naming --json.
void write_json_file(const std::string& file, const std::string& text);

}  // namespace psring::bench
