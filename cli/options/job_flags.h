#pragma once

#include <psring/cli/options/flags.h>
#include <psring/common/proc/options/values.h>

namespace psring::cli {

/// Adds every option of common/proc/options to a subcommand, and --help-all and --config. Parsing puts the text of each
/// option that is typed, or that the configuration file has, into `given`, which must live as long as the command.
void add_job_flags(const Flags& command, options::Given& given);

}  // namespace psring::cli
