#include <algorithm>
#include <cstdint>
#include <regex>

#include <psring/common/base/text/json.h>
#include <psring/view/report_parts.h>

namespace psring::view {
namespace {

using Words = std::vector<std::string>;

/// The place of an option's value; the end of the words if the option is not given with a value of its own.
Words::iterator value_of(Words& words, const std::string& flag) {
  const auto found = std::find(words.begin(), words.end(), flag);
  return found == words.end() || found + 1 == words.end() ? words.end() : found + 1;
}

void remove(Words& words, const std::string& flag) {
  if (const auto value = value_of(words, flag); value != words.end()) words.erase(value - 1, value + 1);
}

void set(Words& words, const std::string& flag, const std::string& value) {
  if (const auto at = value_of(words, flag); at != words.end()) {
    *at = value;
  } else {
    words.push_back(flag);
    words.push_back(value);
  }
}

std::string text_of(const Json& value) { return value.is_string() ? value.get<std::string>() : value.dump(); }

/// Replaces lists by this row's value, so that the command makes this row alone.
void keep_row(Words& words, const Json& job) {
  for (auto word = words.begin(); word != words.end() && word + 1 != words.end(); ++word) {
    if (!word->starts_with("--") || (word + 1)->find(',') == std::string::npos) continue;
    std::string name = word->substr(2);
    std::replace(name.begin(), name.end(), '-', '_');
    if (name == "bucket") name = "bucket_bytes";
    if (job.contains(name)) *(word + 1) = text_of(job[name]);
  }
}

/// Returns the doubled or halved number of an option; "" if the job has no such number, or half of it is none.
std::string scaled(const Json& job, std::string name, bool larger) {
  std::replace(name.begin(), name.end(), '-', '_');
  if (!job.contains(name) || !job[name].is_number_unsigned()) return "";
  const auto value = job[name].get<std::uint64_t>();
  const std::uint64_t changed = larger ? 2 * value : value / 2;
  return changed == 0 || changed == value ? "" : std::to_string(changed);
}

}  // namespace

Words next_command(const Words& command, const Json& job, const std::string& advice) {
  static const std::regex kExact("(?:^|: )--([a-z-]+) ([a-z0-9]+)(?:[:,]|$)");
  static const std::regex kLarger("\\b(more|a larger|fewer) --([a-z-]+)");
  if (command.size() < 2) return {};
  Words words = command;
  for (const char* flag : {"--out", "--runs"}) remove(words, flag);
  if (command[1] == "train")  // options that belong to one run
    for (const char* flag : {"--fault", "--resume", "--live"}) remove(words, flag);
  words.erase(std::remove(words.begin(), words.end(), "--wide"), words.end());
  keep_row(words, job);
  std::smatch found;
  if (advice.starts_with("ps-async")) {
    const auto strategies = value_of(words, "--strategies");
    if (strategies == words.end() || strategies->find("ps-async") != std::string::npos) return {};
    *strategies += ",ps-async";
    return words;
  }
  if (std::regex_search(advice, found, kExact)) {
    set(words, "--" + found[1].str(), found[2]);
    return words == command ? Words() : words;
  }
  if (!std::regex_search(advice, found, kLarger)) return {};
  const std::string value = scaled(job, found[2], found[1] != "fewer");
  if (value.empty()) return {};
  set(words, "--" + found[2].str(), value);
  return words;
}

}  // namespace psring::view
