#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

namespace psring::view {

/// A line of metrics.jsonl about one step of one worker.
struct StepLine {
  std::uint32_t worker = 0;
  std::uint64_t membership = 0;
  std::uint64_t step = 0;
  double time_s = 0;           ///< on the worker's own clock
  std::optional<double> loss;  ///< nothing if it is not finite
  double samples = 0;
  double step_s = 0;
  double compute_s = 0;
  double exposed_s = 0;
  double bubble_s = 0;  ///< the part of exposed_s in which a pipeline's stage waited for other stages
  double staleness = 0;
};

/// Reads a line, or returns nothing if it is not a JSON object with the numbers `worker`, `step`, `time_s` and
/// `step_s`. Fields with other names are skipped, and not checked closely: a busy run writes thousands of lines in a
/// second, which a complete parser takes too long to read.
std::optional<StepLine> read_step_line(std::string_view line);

/// The course of the steps, with bounded memory: if more than `kMost` steps are there, every second one is dropped, and
/// only every second one is taken from then on.
class LiveSeries {
 public:
  static constexpr std::size_t kMost = 1000;

  /// Does the series keep this step?
  bool wants(std::uint64_t step) const { return step % stride_ == 0; }
  /// `line.time_s`: on one clock for all workers.
  void add(const StepLine& line);
  /// Forgets the steps from this one on: they are made again.
  void drop_from(std::uint64_t step) { points_.erase(points_.lower_bound(step), points_.end()); }

  double last_time_s() const { return points_.empty() ? 0 : points_.rbegin()->second.time_s; }
  /// Samples per second of all workers over the last `window_s` seconds or, if the points are farther apart, since the
  /// last but one; 0 if it is not known.
  double samples_per_second(double window_s) const;
  /// Steps per second over the same time.
  double steps_per_second(double window_s) const;
  /// The columns as a JSON object.
  std::string json() const;

 private:
  struct Point {
    double time_s = 0;  ///< the latest of its lines
    double loss = 0;    ///< sum over samples
    double samples = 0;
    double rate = 0;  ///< samples per second, summed over workers
    double step_s = 0;
    double exposed_s = 0;
    double staleness = 0;
    double lines = 0;
  };
  using Points = std::map<std::uint64_t, Point>;

  Points::const_iterator window_begin(double window_s) const;

  Points points_;  ///< by step
  std::uint64_t stride_ = 1;
};

}  // namespace psring::view
