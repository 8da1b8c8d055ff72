#pragma once

#include <string>

#include <psring/common/base/json.h>

namespace psring::view {

/// Returns the figures of LiveState as OpenMetrics text (https://openmetrics.io). Units are seconds and bytes. A metric
/// without a value is left out.
std::string open_metrics(const Json& figures);

}  // namespace psring::view
