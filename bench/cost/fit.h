#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <span>
#include <string>

#include <psring/common/base/json.h>

namespace psring::bench {

/// A measurement: the time of work of a size.
struct TimedSize {
  double size = 0;  ///< bytes, FLOPs, messages ...
  double seconds = 0;
};

/// A cost that was fitted by least squares of the relative errors: seconds = fixed_s + per_unit_s * size.
struct CostLine {
  double fixed_s = 0;
  double per_unit_s = 0;
  std::string unit = {};    ///< "byte", "FLOP", "frame"
  std::size_t points = 0;   ///< measurements; 0: the numbers were given, not measured
  double median_error = 0;  ///< relative, of the line at the measured sizes
  double worst_error = 0;
  double per_unit_error = 0;  ///< half of the 95 % confidence interval of per_unit_s, relative

  double seconds(double size) const { return fixed_s + per_unit_s * size; }
  /// False if the line does not describe the measurements: the median error is above 10 %, or there are fewer than 4.
  bool good() const { return points == 0 || (points >= 4 && median_error <= 0.10); }
};

/// Fits a line with fixed_s >= 0 and per_unit_s >= 0. REQUIRES: two sizes at least, all times above 0.
CostLine fit_line(std::span<const TimedSize> measured, const std::string& unit);

/// The measured costs of a host, or of a pair of hosts: a file of `psring fit`.
///
///   {"format": "psring-fit", "version": 1, "program": ..., "host": ..., "processors": 2,
///    "lines": {"link.tcp": {"unit": "byte", "fixed_s": 1e-5, "per_unit_s": 4e-10, "points": 9, ...}, ...},
///    "factors": {"slowdown": 1.1}}
struct Fit {
  std::string host = {};
  std::string processor = {};
  std::size_t processors = 0;
  std::map<std::string, CostLine> lines = {};
  std::map<std::string, double> factors = {};  ///< numbers without a size

  const CostLine* find(const std::string& name) const;
  /// Returns a factor, or `otherwise` if the file does not have it.
  double factor(const std::string& name, double otherwise) const;
};

Json to_json(const Fit& fit);
/// Throws data, naming the file.
Fit load_fit(const std::string& file);

}  // namespace psring::bench
