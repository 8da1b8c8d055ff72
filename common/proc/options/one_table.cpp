#include <algorithm>
#include <array>
#include <utility>

#include <fmt/ranges.h>

#include <psring/common/base/text/error.h>
#include <psring/common/base/text/text.h>
#include <psring/common/proc/options/one_table.h>
#include <psring/common/proc/options/table.h>
#include <psring/common/proc/options/values.h>

namespace psring::options {
namespace {

constexpr std::array<std::string_view, 8> kKeys{"optimizer", "lr", "type", "init", "admit", "ttl", "rows", "compress"};

struct OneTable {
  std::string name;
  std::vector<std::pair<std::string, std::string>> options;  ///< by the name of the option for all tables
};

/// Parses NAME:KEY=VALUE,... A part between commas that begins with no key belongs to the value before: ttl=9,keep=5.
OneTable parse_table(std::string_view text) {
  const std::size_t colon = text.find(':');
  if (colon == std::string_view::npos || colon == 0)
    fail(ErrorKind::usage, "--table: expected NAME:KEY=VALUE,... such as words:optimizer=adagrad,lr=0.1, got '{}'",
         text);
  OneTable table{std::string(text.substr(0, colon)), {}};
  for (const std::string_view part : split(text.substr(colon + 1), ',')) {
    const std::string_view key = part.substr(0, part.find('='));
    if (key.size() < part.size() && std::ranges::count(kKeys, key) > 0) {
      const std::string option = "table-" + std::string(key);
      if (std::ranges::count(table.options, option, [](const auto& each) { return each.first; }) > 0)
        fail(ErrorKind::usage, "--table {}: {} is given twice", table.name, key);
      table.options.emplace_back(option, part.substr(key.size() + 1));
    } else if (table.options.empty()) {
      fail(ErrorKind::usage, "--table {}: expected KEY=VALUE with one of the keys {}, got '{}'", table.name,
           fmt::join(kKeys, ", "), part);
    } else {
      table.options.back().second.append(",").append(part);
    }
  }
  return table;
}

std::vector<OneTable> parse_tables(const std::string& text) {
  std::vector<OneTable> tables;
  for (const std::string_view word : split(text, ' ')) {
    if (word.empty()) continue;
    tables.push_back(parse_table(word));
    if (std::ranges::count(tables, tables.back().name, &OneTable::name) > 1)
      fail(ErrorKind::usage, "--table {}: is given twice; write all of its options behind one name",
           tables.back().name);
  }
  return tables;
}

void apply(JobOptions& job, const OneTable& table) {
  for (const auto& [name, value] : table.options) {
    try {
      set(job, at(name), value);
    } catch (const Error& error) {
      throw error.with_context("--table " + table.name);
    }
  }
}

}  // namespace

std::vector<std::string> named_tables(const std::string& text) {
  std::vector<std::string> names;
  for (const OneTable& table : parse_tables(text)) {
    JobOptions job;
    apply(job, table);
    names.push_back(table.name);
  }
  return names;
}

JobOptions options_of_table(const JobOptions& job, std::string_view table) {
  JobOptions own = job;
  for (const OneTable& each : parse_tables(job.table))
    if (each.name == table) apply(own, each);
  return own;
}

}  // namespace psring::options
