#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <psring/common/base/events/events.h>
#include <psring/common/proc/role.h>
#include <psring/optim/schedule.h>

namespace psring::worker {

class Training;
struct Prediction;

/// Some of many numbers: all, then every second, every fourth and so on, so that there are never more than kMost.
class Thinned {
 public:
  static constexpr std::size_t kMost = 1U << 16;

  void add(double value);
  const std::vector<double>& values() const { return values_; }

 private:
  std::vector<double> values_;
  std::size_t every_ = 1;
  std::size_t passed_ = 0;  ///< since the last that was taken
};

/// A worker's GPU at the end of its run.
struct GpuMemory {
  std::string name;
  std::uint64_t booked = 0;             ///< the ledger's peaks of all that lies there
  std::optional<std::uint64_t> driver;  ///< the driver's count, without CUDA's own memory; empty if others use the GPU
};

/// Writes a worker's metrics.jsonl lines (a line a step, and one an evaluation) to the run folder, and reports the
/// progress of the run. Lines are collected and sent twice a second, so that a short step does not take longer.
class MetricsWriter final : public ReportListener {
 public:
  struct Run {
    std::uint64_t steps = 0;
    double lr = 0;
    const optim::Schedule* schedule = nullptr;
    bool classes = true;                ///< does the model tell classes apart, so that it has an accuracy?
    std::size_t tokens_per_sample = 0;  ///< the context of a text model; 0 for all other models
    std::size_t threads = 1;            ///< that compute
    bool tells_progress = true;         ///< this worker tells the coordinator how far the run is
  };
  MetricsWriter(const Run& run, Membership& member);

  /// Time spent in communication so far, for comm_s.
  void measure(const Training& training) { training_ = &training; }

  /// A step begins: communication between two steps, for evaluations and checkpoints, belongs to neither of them.
  void begin_step();
  void on_step(const StepReport& report) override;
  void on_evaluation(const Evaluation& evaluation) override;
  void flush();
  /// An evaluation goes on, and this share of it is done. The share is reported if the evaluation takes long.
  void evaluates(double share);

  /// Returns the run's figures so far and the strategy's prediction for a step, as a JSON object.
  std::string summary_json(const Prediction& prediction, std::uint64_t skipped_steps,
                           const std::optional<GpuMemory>& gpu) const;

 private:
  void line(std::string text);
  void tell_progress(std::optional<double> evaluated = std::nullopt);
  void store();
  Nanoseconds communicated() const;
  /// Share of the time since the first step began for which a computing thread had to wait for a processor.
  std::optional<double> run_delay() const;

  /// The processors that this process has used since the first step began, on average.
  std::optional<double> processors_used() const;

  /// When the first step began, and the process's run delay and processor time until then.
  struct Began {
    Moment at;
    std::optional<double> delay_s;
    double processor_s = 0;
  };

  const Run run_;
  Membership& member_;
  const Training* training_ = nullptr;
  const Moment start_;
  Moment flushed_;
  Moment evaluates_since_;
  Moment told_of_evaluation_;
  std::string lines_;
  std::uint64_t sent_ = 0;
  std::uint64_t received_ = 0;
  Nanoseconds communicated_{0};

  std::uint64_t samples_ = 0;
  std::uint64_t steps_ = 0;       ///< made here
  std::uint64_t first_step_ = 0;  ///< not 0 after --resume
  Nanoseconds training_time_{0};  ///< of all steps
  Nanoseconds exposed_{0};
  Thinned bubbles_;  ///< of each step: the share of it that a stage waited for other stages
  Thinned step_seconds_;
  Thinned exposed_seconds_;
  Thinned busy_seconds_;  ///< of each step, not waiting for communication
  std::optional<Began> began_;
  double first_loss_ = 0;
  double last_loss_ = 0;
  std::uint64_t last_samples_ = 0;
  Evaluation evaluation_;
};

}  // namespace psring::worker
