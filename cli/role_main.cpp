#include <CLI/CLI.hpp>
#include <version.h>

#include <psring/cli/commands.h>
#include <psring/cli/help.h>
#include <psring/cli/parse.h>
#include <psring/cli/role_main.h>
#include <psring/common/base/allocator.h>
#include <psring/common/base/error.h>
#include <psring/common/base/standard_files.h>

namespace psring::cli {

int role_main(const App& app, net::Role role, int argc, char** argv) {
  return App::guard([&] {
    open_standard_files();
    tune_allocator();
    CLI::App root(fmt::format("psring-{0}: a {0} of a job", to_string(role)));
    root.set_version_flag("--version", fmt::format("psring {} ({})", kVersion, kCommit));
    const Command command = add_role(root, role, false);
    add_config(root);
    add_footer(root, exit_status_help());
    set_help_format(root);
    const std::vector<std::string> words(argv, argv + argc);
    const Output output;
    return parse_and_run(root, words, [&] { return command({app, words, output}); });
  });
}

}  // namespace psring::cli
