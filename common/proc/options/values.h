#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include <psring/common/proc/options/option.h>

namespace psring::options {

/// The options of a job as they were typed: text by name, such as {"global-batch", "64"}. A flag's text is "true".
using Given = std::map<std::string, std::string, std::less<>>;

/// The text of an option; "" if the option was not given.
std::string text_of(const Given& given, std::string_view name);

/// Says which text of the option's form was expected, and that `text` was given; "" if the text is of that form.
std::string mistake_in(const Option& option, const std::string& text);

/// Sets the option's field to a text, and checks the value. Does nothing if the row has no field, or if its form is
/// derived. Throws usage, naming the flag.
void set(JobOptions& job, const Option& option, const std::string& text);

/// The default job with all given options set.
JobOptions job_of(const Given& given);

/// The text as a whole number. Throws usage, naming the flag.
std::uint64_t whole_number(std::string_view flag, const std::string& text);

/// The default as a user writes the value; "" if there is none, or if the default depends on other options.
std::string default_text(const Option& option);

/// Does the job have the option's default?
bool has_default(const JobOptions& job, const Option& option);
void reset(JobOptions& job, const Option& option);

/// "--flag VALUE", for an error line about the value that a job has.
std::string flag_with_value(const JobOptions& job, const Option& option, const Given& given);

}  // namespace psring::options
