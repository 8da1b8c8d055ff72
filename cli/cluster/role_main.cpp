#include <fmt/core.h>
#include <version.h>

#include <psring/cli/cluster/role_main.h>
#include <psring/cli/commands.h>
#include <psring/cli/options/help.h>
#include <psring/cli/options/parse.h>
#include <psring/common/base/allocator.h>
#include <psring/common/base/system/standard_files.h>
#include <psring/common/base/text/error.h>

namespace psring::cli {

int role_main(const App& app, net::Role role, int argc, char** argv) {
  return App::guard([&] {
    open_standard_files();
    raise_open_files_limit();
    tune_allocator();
    CommandLine line(fmt::format("psring-{0}: a {0} of a job", to_string(role)),
                     fmt::format("psring {} ({})", kVersion, kCommit));
    const Command command = add_role(line.program(), role, false);
    line.program().add_footer(exit_status_help());
    const std::vector<std::string> words(argv, argv + argc);
    Output output;
    return output.end(line.run(words, [&] { return command({app, words, output}); }));
  });
}

}  // namespace psring::cli
