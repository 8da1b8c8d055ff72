#include <cstdint>
#include <filesystem>
#include <optional>
#include <utility>

#include <CLI/CLI.hpp>

#include <psring/cli/options/flags.h>
#include <psring/cli/options/words.h>
#include <psring/common/base/text/error.h>

namespace psring::cli {

Flag& Flag::require() {
  option_->required();
  return *this;
}

Flag& Flag::show_default() {
  option_->capture_default_str();
  return *this;
}

Flag& Flag::show_default(const std::string& text) {
  option_->default_str(text);
  return *this;
}

Flag& Flag::show_value(const std::string& name) {
  option_->type_name(name);
  return *this;
}

Flag& Flag::set_group(const std::string& title) {
  option_->group(title);
  return *this;
}

bool Flag::is_hidden() const { return option_->get_group().empty(); }

Flag& Flag::make_value_optional() {
  option_->expected(0, 1);
  return *this;
}

Flag& Flag::allow_empty() {
  option_->check(CLI::Validator([](const std::string&) { return std::string(); }, "", kMayBeEmpty));
  return *this;
}

Flag& Flag::separate_by(char separator) {
  option_->delimiter(separator);
  return *this;
}

Flag& Flag::check(std::function<std::string(const std::string&)> mistake) {
  option_->check(std::move(mistake));
  return *this;
}

Flag& Flag::replace_text(std::function<std::string(const std::string&)> replace) {
  option_->transform(std::move(replace));
  return *this;
}

std::string Flag::name() const { return option_->get_single_name(); }

std::string Flag::text() const { return option_->count() > 0 ? option_->results().front() : ""; }

void Flag::set(const std::string& text) {
  option_->clear();
  option_->add_result(text);
  try {
    option_->run_callback();
  } catch (const CLI::Error&) {
    fail(ErrorKind::usage, "--{}: '{}' is not a valid value", name(), text);
  }
}

Flag::Description Flag::describe() const {
  return {.names = option_->get_name(option_->get_positional(), true),
          .value = option_->get_items_expected_max() == 0 ? "" : option_->get_type_name(),
          .default_text = option_->get_default_str(),
          .help = option_->get_description(),
          .required = option_->get_required(),
          .repeats = option_->get_positional() && option_->get_items_expected_max() > 1};
}

template <class Value>
Flag Flags::add(const std::string& names, Value& value, const std::string& help) const {
  CLI::Option* const option = command_->add_option(names, value, help);
  // With extra values, the parser takes "[a,b]" for a list of two values; positional arguments need them to be several.
  if (!option->get_positional()) option->allow_extra_args(false);
  return Flag(*option);
}

template Flag Flags::add(const std::string&, std::string&, const std::string&) const;
template Flag Flags::add(const std::string&, int&, const std::string&) const;
template Flag Flags::add(const std::string&, double&, const std::string&) const;
template Flag Flags::add(const std::string&, std::size_t&, const std::string&) const;
template Flag Flags::add(const std::string&, std::filesystem::path&, const std::string&) const;
template Flag Flags::add(const std::string&, std::optional<std::uint32_t>&, const std::string&) const;
template Flag Flags::add(const std::string&, std::vector<std::string>&, const std::string&) const;
template Flag Flags::add(const std::string&, std::vector<std::size_t>&, const std::string&) const;

Flag Flags::add_text(const std::string& names, std::function<void(const std::string&)> take,
                     const std::string& help) const {
  return Flag(*command_->add_option_function<std::string>(names, take, help));
}

Flag Flags::add_switch(const std::string& names, bool& value, const std::string& help) const {
  return Flag(*command_->add_flag(names, value, help));
}

Flag Flags::add_switch(const std::string& names, std::function<void()> turn_on, const std::string& help) const {
  return Flag(*command_->add_flag_callback(names, std::move(turn_on), help));
}

void Flags::add_help_all(const std::string& help) const { command_->set_help_all_flag("--help-all", help); }

void Flags::add_footer(const std::string& text) const {
  const std::string own = command_->get_footer();
  command_->footer(own.empty() ? text : own + (own.ends_with('\n') ? "\n" : "\n\n") + text);
}

Flags Flags::add_command(const std::string& name, const std::string& help) const {
  return Flags(*command_->add_subcommand(name, help));
}

void Flags::hide() const { command_->group(""); }

std::string Flags::name() const { return command_->get_name(); }

std::string Flags::help() const { return command_->get_description(); }

std::string Flags::footer() const { return command_->get_footer(); }

bool Flags::is_hidden() const { return command_->get_group().empty(); }

bool Flags::has_help_all() const { return command_->get_help_all_ptr() != nullptr; }

Flag Flags::flag(const std::string& name) const { return Flag(*command_->get_option(name)); }

std::vector<Flag> Flags::all() const {
  std::vector<Flag> flags;
  for (CLI::Option* const option : command_->get_options()) flags.emplace_back(*option);
  return flags;
}

std::vector<Flag> Flags::shown() const {
  std::vector<Flag> flags;
  for (CLI::Option* const option : command_->get_options())
    if (option != command_->get_help_ptr() && option != command_->get_help_all_ptr() && !option->get_group().empty())
      flags.emplace_back(*option);
  return flags;
}

Flags Flags::command(const std::string& name) const { return Flags(*command_->get_subcommand(name)); }

std::vector<Flags> Flags::commands() const {
  std::vector<Flags> commands;
  for (CLI::App* const command : command_->get_subcommands({})) commands.emplace_back(*command);
  return commands;
}

}  // namespace psring::cli
