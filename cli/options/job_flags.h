#pragma once

#include <string_view>

#include <psring/cli/options/flags.h>
#include <psring/common/proc/options/values.h>

namespace psring::cli {

/// Adds every option of common/proc/options to a subcommand, and --help-all and --config. Parsing puts the text of each
/// option that is typed, or that the configuration file has, into `given`, which must live as long as the command.
/// `own`: the name of an option that the subcommand has with another meaning, in place of the job's.
void add_job_flags(const Flags& command, options::Given& given, std::string_view own = "");

}  // namespace psring::cli
