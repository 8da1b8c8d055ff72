#pragma once

#include <span>
#include <string>
#include <string_view>

#include <psring/common/proc/options/option.h>

namespace psring::options {

// The table of a job's options. To add an option: add a field to JobOptions, and a row to one of the groups.

/// Options under one title of the help.
struct Group {
  const char* title;
  std::span<const Option> options;
};

/// The groups, in the order of the help.
std::span<const Group> groups();

/// The row of an option by its name without dashes; null if there is none.
const Option* find(std::string_view name);

/// The same for a name that the table has. Throws bug otherwise.
const Option& at(std::string_view name);

/// Returns the rows that have a field, in the order in which JobOptions declares the fields, which is the order of the
/// job's JSON. Some rows are no options: the launcher and the subcommands set their fields.
std::span<const Option* const> recorded();

/// The name of the option's field in the job's JSON.
std::string json_name(const Option& option);

/// The feature's name on the reference page: "servers".
std::string_view name_of(Feature feature);

// The rows of each group: training.cpp, exchange.cpp, operation.cpp.
std::span<const Option> training_options();
std::span<const Option> optimizer_options();
std::span<const Option> table_options();
std::span<const Option> precision_options();
std::span<const Option> checkpoint_options();
std::span<const Option> process_options();
std::span<const Option> update_options();
std::span<const Option> collective_options();
std::span<const Option> network_options();
std::span<const Option> device_options();
std::span<const Option> failure_options();
std::span<const Option> experiment_options();

}  // namespace psring::options
