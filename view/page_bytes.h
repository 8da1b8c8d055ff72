#pragma once

#include <cstddef>

namespace psring::view {

/// view/page/report.html, embedded by embed.cmake.
extern const unsigned char kReportPage[];
extern const std::size_t kReportPageBytes;

}  // namespace psring::view
