#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include <psring/cli/compare/bound.h>
#include <psring/cli/train/entries.h>
#include <psring/cli/train/summary.h>
#include <psring/common/base/text/json.h>

namespace psring::cli {

/// The result of comparing a run's final parameters with the reference's.
enum class Equality : std::uint8_t {
  none,       ///< nothing to compare with
  same_bits,  ///< equal, as the strategy promises
  rounding,   ///< the same arithmetic in another order, as the strategy declares
  inexact,    ///< the strategy promises no bits: see Entry::exact
  differs,    ///< different, though the strategy promised the same bits
};

/// "—", "=", "≈", "inexact", "✗"
const char* to_string(Equality equality);

/// The median, the least and the most of several values.
struct Spread {
  double median = 0;
  double least = 0;
  double most = 0;
  /// (most − least) / median
  double relative() const { return median > 0 ? (most - least) / median : 0; }
};
Spread spread_of(std::vector<double> values);

/// A row's step on a cluster with one process a host, as the cost model predicts it.
struct PredictedStep {
  std::string link = {};              ///< between hosts, as --predict-link names it
  bool encrypted = false;             ///< the link
  std::optional<double> step_s = {};  ///< none: the cost model cannot predict the row
  double compute_s = 0;               ///< part of the step
  double exposed_s = 0;               ///< communication that computing does not hide
  std::string bound = {};             ///< as psring plan names it
  std::string reason = {};            ///< why there is no prediction
  std::string disturbed = {};         ///< what took processors while the costs were measured, and made them too large
};

/// An entry with the summaries of its runs; at least one.
struct Row {
  Entry entry;
  std::vector<Summary> runs;
  Equality equality = Equality::none;
  std::optional<double> largest_difference;  ///< between a parameter and the reference's, over all runs
  std::optional<double> memory_bytes_per_s;  ///< bandwidth of the host, at the bytes that the job holds
  std::size_t processors = 1;                ///< processors of the host
  std::size_t hosts = 1;                     ///< that share the job's processes; this host has the most
  /// Processors that other programs took, for each run; nothing if that is not known.
  std::vector<std::optional<double>> others;
  std::vector<PredictedStep> predicted = {};  ///< for each link of --predict-link

  /// The spread of a figure over the runs.
  Spread spread(double Summary::*figure) const;
  /// Bytes, memory and equality are as the strategy declares, in all runs.
  bool ok() const;
  StepFigures step() const;
  Choices choices() const;
};

/// Returns the bound of the row's step, its reason and the advice, as compare.json and summary.json have them.
Json bound_json(const Row& row);

/// Prefixes of process names, which select the processes of a role.
inline constexpr const char* kWorkers = "worker";
inline constexpr const char* kServers = "server";

/// Returns the bytes that a step of the first run sends and receives: at the busiest worker, or at all servers
/// together.
std::optional<std::uint64_t> moved_bytes(const Row& row, std::string_view role);
/// Returns whether the role's bytes or memory are as predicted in all runs. Nothing if a part of them that is not 0 has
/// no prediction, and no other prediction fails.
std::optional<bool> bytes_ok(const Row& row, std::string_view role);
std::optional<bool> memory_ok(const Row& row, std::string_view role);

/// Returns the largest difference of a value between two files with the same tensors; NaN if a value is not finite.
double largest_difference(const std::filesystem::path& a, const std::filesystem::path& b);
/// Returns whether two files have the same bytes.
bool same_bytes(const std::filesystem::path& a, const std::filesystem::path& b);

}  // namespace psring::cli
