#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace psring::bench {

/// One figure, measured several times.
struct Samples {
  std::vector<double> values;

  double median() const;
  double least() const;
  /// (largest - least) / median
  double spread() const;
  /// The median of this over `other`, round by round: what disturbs a whole round falls out.
  double median_ratio(const Samples& other) const;
};

/// "AMD EPYC, 2 cores, load 0.3": for the head of every report, so that figures can be judged.
std::string describe_machine();

/// "4K", "1M": the shortest that parse_bytes reads back.
std::string short_bytes(std::size_t bytes);

/// Writes text to a file. Throws data, naming --json.
void write_json_file(const std::string& file, const std::string& text);

}  // namespace psring::bench
