#include <map>

#include <fmt/core.h>
#include <version.h>

#include <psring/cli/app.h>
#include <psring/cli/commands.h>
#include <psring/cli/options/help.h>
#include <psring/cli/options/option_list.h>
#include <psring/cli/options/parse.h>
#include <psring/common/base/allocator.h>
#include <psring/common/base/system/standard_files.h>
#include <psring/common/base/text/error.h>

namespace psring {
namespace {

int run_command_line(const App& app, int argc, char** argv) {
  cli::CommandLine line("psring: data-parallel training through parameter servers, to run, measure and teach",
                        fmt::format("psring {} ({})", cli::kVersion, cli::kCommit));
  const cli::Flags program = line.program();
  std::map<std::string, cli::Command> commands;
  for (const auto add :
       {cli::add_train,    cli::add_resume,      cli::add_compare,  cli::add_report,    cli::add_trace,
        cli::add_watch,    cli::add_step,        cli::add_fit,      cli::add_plan,      cli::add_keygen,
        cli::add_doctor,   cli::add_coordinator, cli::add_agent,    cli::add_manifests, cli::add_memory,
        cli::add_generate, cli::add_tokenize,    cli::add_quantize, cli::add_export,    cli::add_rows,
        cli::add_check,    cli::add_check_run,   cli::add_options}) {
    const std::size_t before = program.commands().size();
    cli::Command command = add(program);
    commands[program.commands().at(before).name()] = std::move(command);
  }
  for (const auto& [name, role] : {std::pair{"role-server", net::Role::server}, {"role-worker", net::Role::worker}}) {
    const cli::Flags command = program.add_command(name, "");
    command.hide();  // started by agents
    commands[name] = cli::add_role(command, role, true);
  }
  for (const char* const name : {"train", "compare", "step", "coordinator"})
    program.command(name).add_footer(cli::names_help(app) + "\n" + cli::exit_status_help());
  program.add_footer("psring COMMAND --help lists the options of a command.\n\n" + cli::exit_status_help());
  const std::vector<std::string> words(argv, argv + argc);
  cli::Output output;
  return output.end(line.run(words, [&] { return commands.at(line.typed_command())({app, words, output}); }));
}

}  // namespace

App::App() {
  worker::register_builtins(workers_);
  optim::register_builtin_optimizers(optimizers_);
  server::register_builtin_aggregators(aggregators_);
}

int App::run(int argc, char** argv) const noexcept {
  return guard([&] {
    open_standard_files();
    raise_open_files_limit();
    tune_allocator();
    return run_command_line(*this, argc, argv);
  });
}

int App::guard(const std::function<int()>& body) noexcept {
  try {
    const int status = body();
    if (status == 0) flush_standard_output();  // another status is reported as it is
    return status;
  } catch (const std::exception& exception) {
    const Error error = to_error(exception);
    out::error(error.what());
    return exit_status(error.kind());
  }
}

}  // namespace psring
