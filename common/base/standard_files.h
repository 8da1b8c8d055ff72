#pragma once

#include <psring/common/base/error.h>

namespace psring {

/// Opens /dev/null as standard input, output or error if the program was started without it. Otherwise the first files
/// and sockets would get these numbers, and the program's output would be written into them. Call it first in main.
void open_standard_files();

/// Raises the soft limit of open files towards the hard limit, for this process and its children: a role has a few
/// files for each of its peers.
void raise_open_files_limit();

/// Writes out all that the program has printed. Throws data if some of it could not be written: a full disk. Call it
/// last in main, so that no command ends with status 0 without its results.
void flush_standard_output();
/// Returns the error that standard output could not be written, for the reason `error`: an errno, or 0 if it is not
/// known any more.
Error standard_output_error(int error);

}  // namespace psring
