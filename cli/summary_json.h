#pragma once

#include <psring/cli/summary.h>
#include <psring/common/base/json.h>

namespace psring::cli {

/// Returns the content of summary.json, but for the reports of the roles.
Json to_json(const Summary& summary);

}  // namespace psring::cli
