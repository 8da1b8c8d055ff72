#include <cstdio>
#include <map>
#include <sstream>
#include <string>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <psring/cli/fitting.h>
#include <psring/cli/option_list.h>
#include <psring/common/base/spec.h>
#include <psring/common/proc/options/table.h>

namespace psring::cli {
namespace {

using Json = nlohmann::ordered_json;
using options::Feature;

/// The names of the strategies that have a feature if no option changes them.
Json strategies_with(const App& app, Feature feature) {
  Json names = Json::array();
  const Registry<worker::StrategyKind>& strategies = app.worker_registries().strategies;
  std::istringstream lines(strategies.help());  // a line each: NAME HELP
  for (std::string line; std::getline(lines, line);) {
    const std::string name = line.substr(0, line.find(' '));
    const auto kind = strategies.make(Spec::parse("--strategy", name));
    JobOptions job;
    job.consistency = kind->consistency;
    if (has_feature(*kind, job, feature)) names.push_back(name);
  }
  return names;
}

Json describe(const CLI::Option& option) {
  return {{"name", option.get_name(option.get_positional(), true)},
          {"value", option.get_items_expected_max() == 0 ? "" : option.get_type_name()},
          {"default", option.get_default_str()},
          {"help", option.get_description()},
          {"required", option.get_required()}};
}

/// The options of a job, by group, and the strategies that have the features which the options need.
Json describe_job(const CLI::App& command, const App& app) {
  Json groups = Json::array();
  Json features = Json::object();
  for (const options::Group& group : options::groups()) {
    Json described = Json::array();
    for (const options::Option& row : group.options) {
      Json option = describe(*command.get_option(std::string("--") + row.name));
      option["everyday"] = row.everyday;
      Json& needs = option["needs"] = Json::array();
      for (const options::Need& need : row.needs) {
        if (need.feature == Feature::none) continue;
        const std::string name(options::name_of(need.feature));
        needs.push_back(name);
        if (!features.contains(name)) features[name] = strategies_with(app, need.feature);
      }
      described.push_back(std::move(option));
    }
    groups.push_back({{"title", group.title}, {"options", std::move(described)}});
  }
  return {{"groups", std::move(groups)}, {"features", std::move(features)}};
}

/// A command with the options that are its own.
Json describe_command(const std::string& name, const CLI::App& command) {
  Json own = Json::array();
  for (const CLI::Option* const option : command.get_options()) {
    const bool in_table = command.get_help_all_ptr() != nullptr && options::find(option->get_single_name()) != nullptr;
    const bool help = option == command.get_help_ptr() || option == command.get_help_all_ptr();
    if (!in_table && !help && !option->get_group().empty()) own.push_back(describe(*option));
  }
  return {{"name", name},
          {"help", command.get_description()},
          {"takes_job", command.get_help_all_ptr() != nullptr},
          {"options", std::move(own)}};
}

}  // namespace

Command add_options(CLI::App& root) {
  CLI::App* const command = root.add_subcommand("options", "print all options of all commands as JSON");
  command->group("");  // for scripts/reference, which writes docs/guide/reference.md
  return [&root](const Invocation& invocation) {
    const std::map<std::string, std::string> programs = {{"role-server", "psring-server"},
                                                         {"role-worker", "psring-worker"}};
    Json commands = Json::array();
    for (const CLI::App* const each : root.get_subcommands({})) {
      const auto program = programs.find(each->get_name());
      if (program != programs.end())
        commands.push_back(describe_command(program->second, *each));
      else if (!each->get_group().empty())
        commands.push_back(describe_command("psring " + each->get_name(), *each));
    }
    const Json all = {{"commands", std::move(commands)},
                      {"job", describe_job(*root.get_subcommand("train"), invocation.app)}};
    fmt::print("{}\n", all.dump(2));
    return 0;
  };
}

}  // namespace psring::cli
