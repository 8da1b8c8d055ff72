#include <concepts>

#include <fmt/format.h>

#include <psring/common/base/text/error.h>
#include <psring/common/base/text/number.h>
#include <psring/common/base/text/spec.h>
#include <psring/common/proc/options/check.h>
#include <psring/common/proc/options/table.h>
#include <psring/common/proc/options/values.h>

namespace psring::options {
namespace {

std::string flag_of(const Option& option) { return std::string("--") + option.name; }

bool parse_switch(const Option& option, const std::string& text) {
  if (option.form == Form::flag) return text == "true";
  if (text != "on" && text != "off") fail(ErrorKind::usage, "{}: expected on or off, got '{}'", flag_of(option), text);
  return text == "on";
}

void assign(std::string& value, const Option& /*option*/, const std::string& text) { value = text; }
void assign(bool& value, const Option& option, const std::string& text) { value = parse_switch(option, text); }
void assign(std::size_t& value, const Option& option, const std::string& text) {
  value = option.form == Form::bytes ? parse_bytes(flag_of(option), text) : whole_number(flag_of(option), text);
}
void assign(double& value, const Option& option, const std::string& text) {
  if (const std::string mistake = mistake_in(option, text); !mistake.empty())
    fail(ErrorKind::usage, "{}: {}", flag_of(option), mistake);
  // Rounded twice, as it has always been: the same text gives the same bits in every release.
  value = static_cast<double>(read_number<long double>(text).value_or(0));
}
template <class Value>
void assign(std::optional<Value>& value, const Option& option, const std::string& text) {
  assign(value.emplace(), option, text);
}

/// Calls `body` with the pointer to the option's field, if the row has one.
template <class Body>
void with_field(const Option& option, Body&& body) {
  std::visit(
      [&](auto member) {
        if constexpr (!std::same_as<decltype(member), std::monostate>) body(member);
      },
      option.field);
}

std::string written(const std::string& value, Form /*form*/) { return value; }
std::string written(bool value, Form form) { return form == Form::flag ? "" : value ? "on" : "off"; }
std::string written(double value, Form /*form*/) { return fmt::format("{}", value); }
std::string written(std::size_t value, Form form) {
  if (form != Form::bytes) return fmt::format("{}", value);
  for (const auto& [suffix, shift] : {std::pair{'G', 30}, {'M', 20}, {'K', 10}})
    if (value > 0 && value % (std::size_t{1} << shift) == 0) return fmt::format("{}{}", value >> shift, suffix);
  return fmt::format("{}", value);
}
template <class Value>
std::string written(const std::optional<Value>& value, Form form) {
  return value ? written(*value, form) : "";
}

}  // namespace

std::string text_of(const Given& given, std::string_view name) {
  const auto found = given.find(name);
  return found == given.end() ? "" : found->second;
}

std::string mistake_in(const Option& option, const std::string& text) {
  if (option.form == Form::whole && !read_number<std::uint64_t>(text))
    return fmt::format("expected a whole number, got '{}'", text);
  if (option.form == Form::number && !read_number<double>(text))
    return fmt::format("expected a number, got '{}'", text);
  return "";
}

std::uint64_t whole_number(std::string_view flag, const std::string& text) {
  const auto value = read_number<std::uint64_t>(text);
  if (!value) fail(ErrorKind::usage, "{}: expected a whole number, got '{}'", flag, text);
  return *value;
}

void set(JobOptions& job, const Option& option, const std::string& text) {
  if (option.form == Form::derived) return;
  with_field(option, [&](auto member) {
    assign(job.*member, option, text);
    check(job, option);
  });
}

JobOptions job_of(const Given& given) {
  JobOptions job;
  for (const Group& group : groups())
    for (const Option& option : group.options)
      if (const auto found = given.find(option.name); found != given.end()) set(job, option, found->second);
  return job;
}

std::string default_text(const Option& option) {
  if (option.standard != nullptr) return option.standard;
  std::string shown;
  with_field(option, [&](auto member) { shown = written(JobOptions().*member, option.form); });
  return shown;
}

bool has_default(const JobOptions& job, const Option& option) {
  bool same = true;
  with_field(option, [&](auto member) { same = job.*member == JobOptions().*member; });
  return same;
}

void reset(JobOptions& job, const Option& option) {
  with_field(option, [&](auto member) { job.*member = JobOptions().*member; });
}

std::string flag_with_value(const JobOptions& job, const Option& option, const Given& given) {
  std::string value;
  if (option.form == Form::derived)
    value = text_of(given, option.name);
  else
    with_field(option, [&](auto member) { value = written(job.*member, Form::whole); });
  if (option.form == Form::flag || value.empty()) return flag_of(option);
  return flag_of(option) + " " + value;
}

}  // namespace psring::options
