#include <memory>

#include <CLI/CLI.hpp>

#include <psring/cli/commands.h>
#include <psring/common/net/key.h>

namespace psring::cli {

Command add_keygen(CLI::App& root) {
  CLI::App* command = root.add_subcommand("keygen", "make the key of a job");
  auto file = std::make_shared<std::string>();  // shared: the parser fills it in, the command reads it
  command->add_option("FILE", *file, "file to write; it must not exist")->required();
  return [file](const Invocation&) {
    net::JobKey::generate().save(*file);
    return 0;
  };
}

}  // namespace psring::cli
