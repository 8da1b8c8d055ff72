#pragma once

#include <string>
#include <vector>

#include <psring/common/base/text/json.h>

namespace psring::view {

/// Returns the command that tries what a comparison or a run advises for one of its rows: its own command, with the
/// first option of the advice changed, and this row's value in place of each list. An option that should become larger
/// or smaller is doubled or halved. Empty if the advice names no option, or the option cannot be changed so.
std::vector<std::string> next_command(const std::vector<std::string>& command, const Json& job,
                                      const std::string& advice);

}  // namespace psring::view
