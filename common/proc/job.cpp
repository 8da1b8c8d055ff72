#include <concepts>

#include <psring/common/base/text/error.h>
#include <psring/common/base/text/json.h>
#include <psring/common/base/text/json_number.h>
#include <psring/common/base/text/number.h>
#include <psring/common/base/text/text.h>
#include <psring/common/proc/job.h>
#include <psring/common/proc/options/table.h>

namespace psring {
namespace {

/// Calls visit(name, field) for every field, so that writing and reading agree.
template <class Options, class Visit>
void for_each_field(Options& job, Visit&& visit) {
  for (const options::Option* const option : options::recorded())
    std::visit(
        [&](auto member) {
          if constexpr (!std::same_as<decltype(member), std::monostate>)
            visit(options::json_name(*option), job.*member);
        },
        option->field);
}

template <class T>
void write(Json& json, const T& value) {
  json = value;
}
template <class T>
void write(Json& json, const std::optional<T>& value) {
  if (value) json = *value;
}

constexpr const char* kDescription = "the job's description";

template <class T>
void read(const Json& json, const std::string& name, T& value) {
  if constexpr (std::unsigned_integral<T> && !std::same_as<T, bool>)
    value = whole_number<T>(json, kDescription, name);
  else
    value = json.get<T>();
}
template <class T>
void read(const Json& json, const std::string& name, std::optional<T>& value) {
  value.reset();
  if (!json.is_null()) read(json, name, value.emplace());
}

}  // namespace

std::optional<std::size_t> JobOptions::shard_owners() const {
  if (shard_group == "host") return std::nullopt;
  if (shard_group.empty()) return data_workers();
  const std::size_t count = read_number<std::size_t>(shard_group).value_or(0);
  if (count == 0)
    fail(ErrorKind::usage, "--shard-group: expected host or a number of workers > 0, got '{}'", shard_group);
  if (workers % count != 0)
    fail(ErrorKind::usage, "--shard-group {}: cannot divide {} workers into groups of {}", shard_group, workers, count);
  return count;
}

std::string to_json(const JobOptions& job) {
  Json json;
  for_each_field(job, [&](const std::string& name, const auto& field) {
    if constexpr (std::convertible_to<decltype(field), std::string_view>)
      if (!is_utf8(field))
        fail(ErrorKind::data, "{} '{}': is not UTF-8, in which psring writes its records; choose another name", name,
             with_escapes(field));
    write(json[name], field);
  });
  return json.dump(2);
}

JobOptions job_from_json(const std::string& text) {
  JobOptions job;
  try {
    const Json json = Json::parse(text);
    for_each_field(job, [&](const std::string& name, auto& field) { read(json.at(name), name, field); });
  } catch (const JsonError& error) {
    fail(ErrorKind::data, "{}: {}", kDescription, error.what());
  }
  return job;
}

}  // namespace psring
