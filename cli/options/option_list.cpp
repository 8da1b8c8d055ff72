#include <sstream>
#include <string>

#include <psring/cli/options/option_list.h>
#include <psring/cli/plan/fitting.h>
#include <psring/common/base/system/standard_files.h>
#include <psring/common/base/text/json.h>
#include <psring/common/base/text/spec.h>
#include <psring/common/proc/options/table.h>

namespace psring::cli {
namespace {

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

Json describe(const Flag& flag) {
  const Flag::Description described = flag.describe();
  return {{"name", described.names}, {"value", described.value},       {"default", described.default_text},
          {"help", described.help},  {"required", described.required}, {"repeats", described.repeats}};
}

/// The options of a job, by group, and the strategies that have the features which the options need.
Json describe_job(const Flags& command, const App& app) {
  Json groups = Json::array();
  Json features = Json::object();
  for (const options::Group& group : options::groups()) {
    Json described = Json::array();
    for (const options::Option& row : group.options) {
      Json option = describe(command.flag(std::string("--") + row.name));
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

/// A command with the options that are its own, and the names of the job's options that its help leaves out.
Json describe_command(const std::string& name, const Flags& command) {
  Json own = Json::array();
  Json without = Json::array();
  if (command.has_help_all())
    for (const options::Group& group : options::groups())
      for (const options::Option& row : group.options)
        if (const std::string flag = std::string("--") + row.name; command.flag(flag).is_hidden())
          without.push_back(flag);
  for (const Flag& flag : command.shown())
    if (!command.has_help_all() || options::find(flag.name()) == nullptr) own.push_back(describe(flag));
  return {{"name", name},
          {"help", command.help()},
          {"footer", command.footer()},
          {"takes_job", command.has_help_all()},
          {"without", std::move(without)},
          {"options", std::move(own)}};
}

}  // namespace

Json describe_program(const std::string& name, const Flags& program) {
  Json commands = Json::array();
  for (const Flags& each : program.commands()) {
    if (each.name().starts_with("role-"))
      commands.push_back(describe_command("psring-" + each.name().substr(5), each));
    else if (!each.is_hidden())
      commands.push_back(describe_command(name + " " + each.name(), each));
  }
  return {{"commands", std::move(commands)}, {"help", program.help()}, {"footer", program.footer()}};
}

Command add_options(const Flags& program) {
  const Flags command = program.add_command("options", "print all options of all commands as JSON");
  command.hide();  // for scripts/reference and scripts/manual
  return [program](const Invocation& invocation) {
    Json all = describe_program("psring", program);
    all["job"] = describe_job(program.command("train"), invocation.app);
    out::print("{}\n", all.dump(2));
    return 0;
  };
}

}  // namespace psring::cli
