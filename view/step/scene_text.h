#pragma once

#include <string>

#include <nlohmann/json_fwd.hpp>

namespace psring::view {

/// Returns a scene as lines for a terminal: the time, the process, and what happens there. Waits and calls without
/// duration are left out. At the end: bytes of the exchange beside the formula, and each process's peak of memory.
std::string scene_text(const nlohmann::ordered_json& scene);

}  // namespace psring::view
