#pragma once

#include <cstddef>
#include <optional>
#include <string>

namespace psring::cli {

/// How far a run is.
struct RunProgress {
  double step = 0;
  double steps = 1;
  std::optional<double> loss;
  double samples_per_second = 0;  ///< of a worker
  double seconds_left = 0;
};

/// "45 s", "12 min", "3 h 20 min"
std::string duration_text(double seconds);

/// One line without a bar: "ps step 12/100  loss 0.5653  20903 samples/s a worker  45 s left".
std::string plain_line(const std::string& label, const RunProgress& progress);

/// The line for a terminal, in at most `columns`: label, bar, step, loss, rate, time left. Where they do not all fit,
/// the bar gets shorter, then the rate, the bar and the loss go, and last the label is cut. The step and the time left
/// stay.
std::string terminal_line(const std::string& label, const RunProgress& progress, std::size_t columns);

}  // namespace psring::cli
