#pragma once

#include <functional>
#include <string>
#include <vector>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace psring::cli {

// Commands add their options through these classes, so that only three sources include the parser's header, which takes
// 9 s to compile.

/// An option of a command. A handle: the command owns the option.
class Flag {
 public:
  explicit Flag(CLI::Option& option) : option_(&option) {}

  Flag& require();
  Flag& show_default();  ///< the help shows the value that the variable has now
  Flag& show_default(const std::string& text);
  Flag& show_value(const std::string& name);  ///< the help shows this name in place of a value
  Flag& set_group(const std::string& title);  ///< the title of the option's group in the help
  Flag& hide() { return set_group(""); }      ///< the help leaves the option out
  bool is_hidden() const;
  Flag& make_value_optional();        ///< given without a value, the text is ""
  Flag& allow_empty();                ///< "" is a value like others
  Flag& separate_by(char separator);  ///< the value is a list of items with this separator
  /// Refuses a text if `mistake` returns a message for it.
  Flag& check(std::function<std::string(const std::string&)> mistake);
  /// Replaces each text that is typed before the text is checked.
  Flag& replace_text(std::function<std::string(const std::string&)> replace);

  /// Returns the name without dashes.
  std::string name() const;
  /// Returns the text that was typed; "" if the option was not given.
  std::string text() const;
  /// Sets the option as if it was typed. Throws usage.
  void set(const std::string& text);

  struct Description {
    std::string names;  ///< "-e,--end"
    std::string value;  ///< the name of its value; "" if the option takes none
    std::string default_text;
    std::string help;
    bool required = false;
    bool repeats = false;  ///< a positional argument of several values
  };
  Description describe() const;

 private:
  CLI::Option* option_;
};

/// The options of a command: of a program, or of its subcommand. A handle: the CommandLine owns the command.
class Flags {
 public:
  explicit Flags(CLI::App& command) : command_(&command) {}

  /// Adds an option that parsing stores into `value`, which must live as long as the command and be a std::string, int,
  /// double, std::size_t, std::filesystem::path, std::optional<std::uint32_t>, std::vector<std::string> or
  /// std::vector<std::size_t>. `names` lists the option's names with dashes, separated by commas; a name without dashes
  /// makes a positional argument. An option of a vector takes one value each time that it is given.
  template <class Value>
  Flag add(const std::string& names, Value& value, const std::string& help = "") const;
  /// Adds an option whose text parsing hands to `take`.
  Flag add_text(const std::string& names, std::function<void(const std::string&)> take, const std::string& help) const;
  /// Adds an option without a value.
  Flag add_switch(const std::string& names, bool& value, const std::string& help = "") const;
  Flag add_switch(const std::string& names, std::function<void()> turn_on, const std::string& help) const;
  /// Adds --help-all. From then on --help shows the everyday options of a job only.
  void add_help_all(const std::string& help) const;
  /// Adds a text below the options.
  void add_footer(const std::string& text) const;
  Flags add_command(const std::string& name, const std::string& help) const;
  void hide() const;  ///< the help of the program leaves the command out

  std::string name() const;
  std::string help() const;
  std::string footer() const;
  bool is_hidden() const;
  bool has_help_all() const;
  Flag flag(const std::string& name) const;  ///< the option with this name (with dashes), which must exist
  std::vector<Flag> all() const;
  std::vector<Flag> shown() const;               ///< all but --help, --help-all and hidden options
  Flags command(const std::string& name) const;  ///< the subcommand with this name, which must exist
  std::vector<Flags> commands() const;

  /// The parser's own object, for the folders that may not include cli.
  CLI::App& parser() const { return *command_; }

 private:
  CLI::App* command_;
};

}  // namespace psring::cli
