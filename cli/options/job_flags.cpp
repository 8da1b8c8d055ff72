#include <psring/cli/options/job_flags.h>
#include <psring/cli/options/parse.h>
#include <psring/common/proc/options/table.h>

namespace psring::cli {
namespace {

using options::Form;
using options::Given;
using options::Option;

/// The name that the help shows in place of a value.
std::string value_name(const Option& option) {
  if (*option.value != '\0') return option.value;
  switch (option.form) {
    case Form::whole:
      return "N";
    case Form::number:
      return "X";
    case Form::on_off:
      return "on|off";
    case Form::bytes:
      return "BYTES";
    default:
      return "TEXT";
  }
}

void add(const Flags& command, const char* group, const Option& option, Given& given) {
  const std::string flag = std::string("--") + option.name;
  if (option.form == Form::flag) {
    const auto turn_on = [&given, &option] { given[option.name] = "true"; };
    command.add_switch(flag, turn_on, option.help).set_group(group);
    return;
  }
  const auto take = [&given, &option](const std::string& text) {
    given[option.name] = text.empty() && option.alone != nullptr ? option.alone : text;
  };
  Flag added = command.add_text(flag, take, option.help);
  added.set_group(group).show_value(value_name(option)).show_default(options::default_text(option));
  if (option.alone != nullptr) added.make_value_optional();
  // parse.cpp refuses an empty value of any option.
  added.check([&option](const std::string& text) { return text.empty() ? "" : options::mistake_in(option, text); });
}

}  // namespace

void add_job_flags(const Flags& command, Given& given, std::string_view own) {
  command.add_help_all("show all options, with those that are seldom used");
  for (const options::Group& group : options::groups())
    for (const Option& option : group.options)
      if (option.name != own) add(command, group.title, option, given);
  add_config(command);
}

}  // namespace psring::cli
