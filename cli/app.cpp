#include <cstdio>
#include <map>

#include <CLI/CLI.hpp>
#include <version.h>

#include <psring/cli/app.h>
#include <psring/cli/commands.h>
#include <psring/cli/help.h>
#include <psring/cli/option_list.h>
#include <psring/cli/parse.h>
#include <psring/common/base/allocator.h>
#include <psring/common/base/error.h>
#include <psring/common/base/standard_files.h>

namespace psring {
namespace {

int run_command_line(const App& app, int argc, char** argv) {
  CLI::App root("psring: data-parallel training through parameter servers, to run, measure and teach");
  root.set_version_flag("--version", fmt::format("psring {} ({})", cli::kVersion, cli::kCommit));
  root.require_subcommand(1);
  std::map<CLI::App*, cli::Command> commands;
  for (const auto add : {cli::add_train, cli::add_resume, cli::add_compare, cli::add_report, cli::add_step,
                         cli::add_keygen, cli::add_doctor, cli::add_coordinator, cli::add_agent, cli::add_options}) {
    const std::size_t before = root.get_subcommands({}).size();
    cli::Command command = add(root);
    commands[root.get_subcommands({}).at(before)] = std::move(command);
  }
  for (const auto& [name, role] : {std::pair{"role-server", net::Role::server}, {"role-worker", net::Role::worker}}) {
    CLI::App* command = root.add_subcommand(name, "");
    command->group("");  // started by agents
    commands[command] = cli::add_role(*command, role, true);
  }
  for (const char* const name : {"train", "compare", "step", "coordinator"})
    cli::add_footer(*root.get_subcommand(name), cli::names_help(app) + "\n" + cli::exit_status_help());
  cli::add_footer(root, "psring COMMAND --help lists the options of a command.\n\n" + cli::exit_status_help());
  cli::set_help_format(root);
  const std::vector<std::string> words(argv, argv + argc);
  const cli::Output output;
  return cli::parse_and_run(root, words, [&] {
    return commands.at(root.get_subcommands().front())({app, words, output});
  });
}

}  // namespace

App::App() {
  worker::register_builtins(workers_);
  optim::register_builtin_optimizers(optimizers_);
  server::register_builtin_aggregators(
      [&](const char* name, const char* help, auto make) { aggregators_.add(name, help, make); });
}

int App::run(int argc, char** argv) const noexcept {
  return guard([&] {
    open_standard_files();
    tune_allocator();
    return run_command_line(*this, argc, argv);
  });
}

int App::guard(const std::function<int()>& body) noexcept {
  try {
    return body();
  } catch (const std::exception& exception) {
    const Error error = to_error(exception);
    fmt::print(stderr, "{}{}\n", kErrorPrefix, error.what());
    return exit_status(error.kind());
  }
}

}  // namespace psring
