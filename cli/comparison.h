#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include <psring/cli/bound.h>
#include <psring/cli/entries.h>
#include <psring/cli/summary.h>

namespace psring::cli {

/// How a run's parameters compare with the reference's.
enum class Equality : std::uint8_t {
  none,       ///< nothing to compare with
  same_bits,  ///< as they should be
  rounding,   ///< the same arithmetic in another order, as the strategy declares
  inexact,    ///< the strategy promises no bits: see Entry::exact
  differs,    ///< it promised the same bits
};

/// "—", "=", "≈", "inexact", "✗"
const char* to_string(Equality equality);

/// A median, and what it is the median of goes from where to where.
struct Spread {
  double median = 0;
  double least = 0;
  double most = 0;
  /// (most − least) / median
  double relative() const { return median > 0 ? (most - least) / median : 0; }
};
Spread spread_of(std::vector<double> values);

/// An entry with what its runs came to; at least one.
struct Row {
  Entry entry;
  std::vector<Summary> runs;
  Equality equality = Equality::none;
  std::optional<double> largest_difference;  ///< of a parameter, over all runs, from the reference's
  double memory_bytes_per_s = 0;             ///< of the host, at what its processes hold
  std::size_t processors = 1;                ///< of the host
  std::vector<double> others;                ///< processors that other programs took, in each run

  /// Over its runs.
  Spread of(double Summary::*figure) const;
  /// Bytes, memory and equality are as the strategy declares, in all runs.
  bool ok() const;
  StepFigures step() const;
  Choices choices() const;
};

/// Whose bytes or memory are asked for: all processes with this prefix.
inline constexpr const char* kWorkers = "worker";
inline constexpr const char* kServers = "server";

/// Bytes of a step of the first run, sent and received: of the worker that moves most, or of all servers together.
std::optional<std::uint64_t> moved_bytes(const Row& row, std::string_view role);
/// Is anything predicted of the role's bytes or memory, and all of that so in all runs? Nothing: as predicted.
std::optional<bool> bytes_ok(const Row& row, std::string_view role);
std::optional<bool> memory_ok(const Row& row, std::string_view role);

/// The largest difference of a value between two files with the same tensors; NaN where one is not finite.
double largest_difference(const std::filesystem::path& a, const std::filesystem::path& b);
/// The same bytes?
bool same_bytes(const std::filesystem::path& a, const std::filesystem::path& b);

}  // namespace psring::cli
