#pragma once

#include <cstdint>
#include <span>

#include <psring/worker/model/model.h>

namespace psring::worker {

/// The area under the ROC curve: the share of pairs of a row of class 1 and a row of class 0 in which the first has
/// the larger output; equal outputs count half. 0.5 if a class has no row. Exact. The sizes are equal.
double area_under_curve(std::span<const float> outputs, std::span<const std::int32_t> classes);

/// The area under the curve of the test set as the metric `auc`.
Metric make_auc();
/// The square root of the mean square of the error over the test set, as the metric `rmse`.
Metric make_root_mean_square();

}  // namespace psring::worker
