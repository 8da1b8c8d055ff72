#pragma once

#include <optional>

namespace psring::cli {

/// Measures the load that other programs put on the processors that this process may use.
class OtherLoad {
 public:
  /// Starts to measure.
  OtherLoad();
  /// Returns the mean number of busy processors since the start, without this process and its ended children. Nothing
  /// if the system does not provide the numbers.
  std::optional<double> processors() const;

 private:
  std::optional<double> busy_s_;
  double own_s_ = 0;
  double start_s_ = 0;
};

}  // namespace psring::cli
