#pragma once

#include <nlohmann/json_fwd.hpp>

#include <psring/cli/summary.h>

namespace psring::cli {

/// Returns the content of summary.json, but for the reports of the roles.
nlohmann::ordered_json to_json(const Summary& summary);

}  // namespace psring::cli
