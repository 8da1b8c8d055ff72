#pragma once

#include <string>

#include <psring/common/base/text/json.h>

namespace psring::view {

/// Returns a scene as lines for a terminal: the time, the process, and what happens there. Waits and calls without
/// duration are left out. At the end: bytes of the exchange beside the formula, and each process's peak of memory.
std::string scene_text(const Json& scene);

}  // namespace psring::view
