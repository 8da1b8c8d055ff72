#pragma once

#include <map>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include <psring/bench/predict/fit.h>
#include <psring/bench/predict/measure.h>
#include <psring/cli/app.h>
#include <psring/cli/compare/comparison.h>
#include <psring/common/net/link_shaping.h>

namespace psring::cli {

/// A link of --predict-link.
struct PredictLink {
  std::string text;  ///< as it was given
  net::LinkSpec link;
};

/// Parses --predict-link: one link, two of them between commas, or none. Throws usage.
std::vector<PredictLink> parse_predict_links(const std::string& text);

/// Returns the first of a job's faults that the cost model does not know; "" if it knows all.
std::string unpredicted_fault(const std::string& faults);

/// Predicts the step of a comparison's rows on a cluster: one process a host, with a link between hosts. The costs are
/// measured on this machine while no process of a row runs.
class StepPredictor {
 public:
  /// `encrypt_given`: links are encrypted if the row's job says so; else all are, as links between hosts are by
  /// default. REQUIRES: `app` outlives this.
  StepPredictor(std::vector<PredictLink> links, bool encrypt_given, const App& app);

  /// Measures the layers of each row's model with the batch of one worker, the update rules, and messages.
  void measure(const std::vector<Row>& rows);
  /// One line for people: the time in which a step of each measured batch is computed; "" if nothing was measured.
  std::string measured() const;
  /// Returns the row's step at each link.
  std::vector<PredictedStep> predict(const Entry& entry) const;

 private:
  /// A model, the samples of a micro-batch, the type, and the threads.
  using Computing = std::tuple<std::string, std::size_t, std::string, std::size_t>;

  JobOptions on_hosts(const Entry& entry) const;
  std::string obstacle(const Entry& entry) const;
  void measure_computing(const JobOptions& job);
  PredictedStep predict(const JobOptions& job, const worker::StrategyKind& kind, std::span<const RowTraffic> rows,
                        const PredictLink& at) const;

  const std::vector<PredictLink> links_;
  const bool encrypt_given_;
  const App& app_;
  worker::Registries built_in_;  ///< psring's own strategies
  bench::Fit fit_;
  std::string disturbed_;  ///< by whom the measurement was; "": by nobody
  std::map<Computing, bench::MeasuredPasses> computing_;
  std::map<Computing, std::string> not_measured_;  ///< and why not
};

}  // namespace psring::cli
