// psring rows: the rows of trained tables, by key.
#include <charconv>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <psring/cli/commands.h>
#include <psring/common/base/system/standard_files.h>
#include <psring/common/base/text/error.h>
#include <psring/worker/tables/saved_tables.h>

namespace psring::cli {
namespace {

std::uint64_t parse_key(const std::string& text) {
  const bool hexadecimal = text.starts_with("0x");
  const char* const begin = text.data() + (hexadecimal ? 2 : 0);
  std::uint64_t key = 0;
  const auto [end, error] = std::from_chars(begin, text.data() + text.size(), key, hexadecimal ? 16 : 10);
  if (error != std::errc() || end != text.data() + text.size())
    fail(ErrorKind::usage, "--key: expected a number from 0 to 2^64 - 1, also as 0x…, got '{}'", text);
  return key;
}

void print_rows(const worker::SavedTables& rows, const std::string& table, const std::vector<std::string>& keys) {
  std::vector<float> values(rows.width(table));
  for (const std::string& text : keys) {
    if (rows.find(table, parse_key(text), values))
      out::print("{} {:.9g}\n", text, fmt::join(values, " "));
    else
      out::print("{} no row\n", text);
  }
}

}  // namespace

Command add_rows(const Flags& program) {
  const Flags command = program.add_command("rows", "print rows of trained tables by key");
  struct RowsFlags {
    std::string from;
    std::string table;
    std::vector<std::string> keys;
  };
  auto flags = std::make_shared<RowsFlags>();  // shared: the parser fills it in, the command reads it
  command.add("FROM", flags->from, "folder of exports (psring export), or a saved model's safetensors file")
      .show_value("FILE")
      .require();
  command.add("--table", flags->table, "the table, if there are several");
  command.add("--key", flags->keys,
              "a key, in decimal or as 0x…; may be repeated. Without it the bytes of exports are checked, and rows "
              "counted");
  command.add_footer(
      "A line has a key and the values of its row. A key without a row has its initial values in training.");
  return [flags](const Invocation&) {
    const worker::SavedTables rows(flags->from);
    const std::vector<std::string> tables = rows.tables();
    if (!flags->keys.empty()) {
      if (flags->table.empty() && tables.size() > 1)
        fail(ErrorKind::usage, "--table: expected one of {}", fmt::join(tables, ", "));
      print_rows(rows, flags->table.empty() ? tables.front() : flags->table, flags->keys);
      return 0;
    }
    rows.verify();
    const std::string step = rows.step() ? fmt::format(" at step {}", *rows.step()) : "";
    for (const std::string& table : flags->table.empty() ? tables : std::vector{flags->table})
      out::print("{}: {} rows of {} values{}\n", table, rows.count(table), rows.width(table), step);
    return 0;
  };
}

}  // namespace psring::cli
