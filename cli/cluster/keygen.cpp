#include <memory>

#include <psring/cli/commands.h>
#include <psring/common/net/key.h>

namespace psring::cli {

Command add_keygen(const Flags& program) {
  const Flags command = program.add_command("keygen", "make the key of a job");
  auto file = std::make_shared<std::string>();  // shared: the parser fills it in, the command reads it
  command.add("FILE", *file, "file to write; it must not exist").show_value("FILE").require();
  return [file](const Invocation&) {
    net::JobKey::generate().save(*file);
    return 0;
  };
}

}  // namespace psring::cli
