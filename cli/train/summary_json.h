#pragma once

#include <psring/cli/train/summary.h>
#include <psring/common/base/text/json.h>

namespace psring::cli {

/// Returns the content of summary.json, but for the reports of the roles.
Json to_json(const Summary& summary);

}  // namespace psring::cli
