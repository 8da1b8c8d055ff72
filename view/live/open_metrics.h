#pragma once

#include <string>
#include <string_view>

#include <psring/common/base/text/json.h>

namespace psring::view {

/// OpenMetrics 1.0 (https://openmetrics.io), or the text format 0.0.4 of Prometheus, which came before it: there the
/// names of counters include "_total", and units have no lines.
enum class MetricsFormat { open_metrics, prometheus };

/// Returns OpenMetrics if the reader's Accept header names that format, as Prometheus does; else the older format,
/// which every reader knows.
MetricsFormat metrics_format(std::string_view accept);
const char* content_type(MetricsFormat format);

/// Returns the figures of LiveState as metrics. Units are seconds and bytes. A metric without a value is left out.
std::string metrics(const Json& figures, MetricsFormat format);

}  // namespace psring::view
