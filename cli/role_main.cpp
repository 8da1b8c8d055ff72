#include <CLI/CLI.hpp>
#include <version.h>

#include <psring/cli/commands.h>
#include <psring/cli/options.h>
#include <psring/cli/role_main.h>
#include <psring/common/base/allocator.h>
#include <psring/common/base/error.h>

namespace psring::cli {

int role_main(const App& app, net::Role role, int argc, char** argv) {
  return App::guard([&] {
    tune_allocator();
    CLI::App root(fmt::format("psring-{0}: a {0} of a job", to_string(role)));
    root.set_version_flag("--version", fmt::format("psring {} ({})", kVersion, kCommit));
    add_config_file(root);
    const Command command = add_role(root, role);
    try {
      root.parse(argc, argv);
    } catch (const CLI::Success& success) {
      return root.exit(success);
    } catch (const CLI::ParseError& error) {
      fail(ErrorKind::usage, "{}", error.what());
    }
    return command({app, std::vector<std::string>(argv, argv + argc)});
  });
}

}  // namespace psring::cli
