// --config: lines of keys and values.
#include <psring/cli/options/config_file.h>
#include <psring/tests/fuzz/files.h>

using namespace psring;

void psring::fuzz::run(Input in) {
  const MemoryFile file(in.rest());
  refuses({ErrorKind::usage, ErrorKind::data}, [&] {
    for (const cli::ConfigEntry& entry : cli::read_config_file(file.path())) {
      require(!entry.key.empty() && entry.line > 0, "a key, and its line");
      require(entry.key.find('\n') == std::string::npos, "a key of one line");
    }
  });
}
