#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <psring/cli/compare/comparison.h>

namespace psring::cli {

inline constexpr double kMiB = 1048576.0;

/// A figure in at most seven columns: with `decimals` digits after the point, or fewer if it is large.
std::string number(double value, int decimals);
std::string number(const std::optional<double>& value, int decimals);
/// "12.5 %"
std::string percent(double share);
/// All digits of a number of up to ten digits.
std::string count(std::optional<std::uint64_t> bytes);
/// "+12", "-3"
std::string signed_difference(std::uint64_t measured, std::uint64_t predicted);
/// The figure with ✓ or ✗ after it, or — if nothing is predicted.
std::string marked(std::string figure, const std::optional<bool>& ok);
/// A time, with a star if it cannot be compared with the times of other runs.
std::string time_cell(const Row& row, std::string figure);
/// The most memory that a process of the role booked in any run, in MiB, and whether it is as predicted.
std::string memory_cell(const Row& row, std::string_view role, std::uint64_t Summary::*figure);

/// The columns that depend on the model. Models that read text have tokens/s and perplexity, other models samples/s and
/// the model's own metric, or accuracy; the loss stands in for a result that no row has.
struct ModelColumns {
  enum class Result : std::uint8_t { accuracy, perplexity, own, loss };

  std::string_view rate_name;  ///< "samples/s" or "tokens/s"
  double Summary::*rate;       ///< the figure below it
  Result result = Result::accuracy;
  std::string metric{};  ///< the model's own, if that is the result

  std::string_view result_name() const;  ///< "acc", "ppl", "loss" or the metric's name
  std::string result_cell(const Summary& run) const;
};
ModelColumns model_columns(const std::vector<Row>& rows);

bool several_runs(const std::vector<Row>& rows);

}  // namespace psring::cli
