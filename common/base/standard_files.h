#pragma once

namespace psring {

/// Opens /dev/null as standard input, output or error if the program was started without it. Otherwise the first files
/// and sockets would get these numbers, and the program's output would be written into them. Call it first in main.
void open_standard_files();

}  // namespace psring
