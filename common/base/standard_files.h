#pragma once

namespace psring {

/// Opens /dev/null in place of standard input, output and error where a program was started without them: else the
/// first files and sockets that it opens would take their numbers, and be written to as output. First of all in main.
void open_standard_files();

}  // namespace psring
