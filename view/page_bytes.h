#pragma once

#include <cstddef>

namespace psring::view {

// The pages, bundled from view/web by make_page.cmake.
extern const unsigned char kLivePage[];
extern const std::size_t kLivePageBytes;
extern const unsigned char kPlanPage[];
extern const std::size_t kPlanPageBytes;
extern const unsigned char kReportPage[];
extern const std::size_t kReportPageBytes;
extern const unsigned char kStepPage[];
extern const std::size_t kStepPageBytes;

}  // namespace psring::view
