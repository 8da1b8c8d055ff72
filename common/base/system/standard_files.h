#pragma once

#include <string_view>
#include <utility>

#include <fmt/core.h>

#include <psring/common/base/text/error.h>

namespace psring {

/// Opens /dev/null as standard input, output or error if the program was started without it. Otherwise the first files
/// and sockets would get these numbers, and the program's output would be written into them. Call it first in main.
void open_standard_files();

/// Raises the soft limit of open files towards the hard limit, for this process and its children: a role has a few
/// files for each of its peers.
void raise_open_files_limit();

/// Prints on standard output and standard error. A write that fails (a closed terminal, a full disk) loses the text and
/// does nothing else, so that it ends no job and no destructor. All of psring's output goes through these functions,
/// never through fmt::print, which throws.
namespace out {

/// A failure to print is reported at the end of the program, by flush_standard_output.
void text(std::string_view text) noexcept;
template <class... Args>
void print(fmt::format_string<Args...> format, Args&&... args) {
  text(fmt::format(format, std::forward<Args>(args)...));
}

/// Prints the line that says why a program fails: kErrorPrefix, the cause, a newline. Waits a second at most for a
/// terminal that takes nothing (Ctrl-S), and raises no SIGPIPE, so that the program ends with its exit status.
void error(std::string_view cause) noexcept;

}  // namespace out

/// Writes out all that the program has printed. Throws data if some of it could not be written: a full disk. Call it
/// last in main, so that no command ends with status 0 without its results.
void flush_standard_output();
/// Returns the error that standard output could not be written, for the reason `error`: an errno, or 0 if it is not
/// known any more.
Error standard_output_error(int error);

}  // namespace psring
