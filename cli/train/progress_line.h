#pragma once

#include <cstddef>
#include <optional>
#include <string>

namespace psring::cli {

/// The state of a run that is under way.
struct RunProgress {
  double step = 0;
  double steps = 1;
  std::optional<double> loss;
  double samples_per_second = 0;  ///< of one worker
  double tokens_per_second = 0;   ///< of one worker; 0 if the model does not read text
  double seconds_left = 0;
  std::optional<double> evaluated;  ///< share of the evaluation that goes on; none: the run trains
};

/// "45 s", "12 min", "3 h 20 min"
std::string duration_text(double seconds);

/// One line without a bar: "ps step 12/100  loss 0.5653  20903 samples/s a worker  45 s left". A text model has its
/// perplexity behind the loss, and tokens/s. While a run evaluates: "ps step 12/100  evaluated 40 %  45 s left".
std::string plain_line(const std::string& label, const RunProgress& progress);

/// The line for a terminal, in at most `columns`: label, bar, step, loss, rate, time left. If they do not all fit, the
/// bar gets shorter, then the perplexity, the rate, the bar and the loss are left out, and last the label is cut. The
/// step and the time left stay.
std::string terminal_line(const std::string& label, const RunProgress& progress, std::size_t columns);

}  // namespace psring::cli
