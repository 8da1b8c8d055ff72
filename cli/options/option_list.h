#pragma once

#include <psring/cli/commands.h>
#include <psring/common/base/text/json.h>

namespace psring::cli {

/// Adds the hidden subcommand `options`, which prints all options of all commands as JSON. scripts/reference writes
/// the reference pages from that list, scripts/manual the manual pages and the shells' completions.
Command add_options(const Flags& program);

/// Describes a program's commands, apart from hidden ones, with their options.
Json describe_program(const std::string& name, const Flags& program);

}  // namespace psring::cli
