#pragma once

#include <psring/cli/commands.h>

namespace psring::cli {

/// Adds the hidden subcommand `options`, which prints all options of all commands as JSON. scripts/reference writes
/// the reference pages from that list.
Command add_options(const Flags& program);

}  // namespace psring::cli
