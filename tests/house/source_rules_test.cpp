// The length of product sources, and the first words of comments.
#include <algorithm>
#include <array>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <catch2/catch.hpp>

namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMostLines = 400;

/// Generated tables, which may be longer.
const std::set<std::string> kGeneratedTables = {};

/// A comment that begins so has no subject: it leans on the code or on the sentence before it.
constexpr std::array kRefusedWords = {"Of", "What", "Who", "Those"};
constexpr std::string_view kRefusedPhrase = "So many";

/// File contents by path in the repository.
using Files = std::map<std::string, std::string>;

bool ends_with_any(const std::string& path, std::initializer_list<std::string_view> endings) {
  return std::any_of(endings.begin(), endings.end(), [&](auto ending) { return path.ends_with(ending); });
}

bool is_cpp(const std::string& path) { return ends_with_any(path, {".cpp", ".h", ".cu", ".cuh", ".h.in"}); }

/// Comments of Python, CMake and shell begin with '#'. Scripts have no ending, but a first line that names a shell.
bool has_hash_comments(const std::string& path, std::string_view text) {
  return ends_with_any(path, {".py", ".cmake", ".sh", "CMakeLists.txt", ".clang-tidy"}) || text.starts_with("#!");
}

std::string text_of(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

/// Reads all sources, but for build folders, run folders and the inputs of fuzz targets.
Files read_files(const fs::path& root) {
  Files files;
  for (const char* const top : {".ci", "bench", "cli", "cmake", "common", "docs", "optim", "python", "ring", "scripts",
                                "server", "tests", "view", "worker"}) {
    if (!fs::exists(root / top)) continue;
    for (auto entry = fs::recursive_directory_iterator(root / top); entry != fs::end(entry); ++entry) {
      const std::string name = entry->path().filename().string();
      if (entry->is_directory() && (name == "corpus" || name == "__pycache__")) entry.disable_recursion_pending();
      if (!entry->is_regular_file()) continue;
      const std::string path = entry->path().lexically_relative(root).generic_string();
      std::string text = text_of(entry->path());
      if (is_cpp(path) || has_hash_comments(path, text)) files[path] = std::move(text);
    }
  }
  for (const char* const name : {"CMakeLists.txt", ".clang-tidy"}) files[name] = text_of(root / name);
  return files;
}

/// One line of a comment: its place, the marker that begins it ("//", "///", "///<", "/*" or "#"), and the text after.
struct CommentLine {
  std::size_t line = 0;
  std::size_t column = 0;
  std::string marker;
  std::string text;
};

CommentLine comment_line(std::string_view rest, std::size_t line, std::size_t column) {
  const std::size_t marker = std::min(rest.find_first_not_of("/*!<#"), rest.size());
  rest = rest.substr(0, std::min(rest.find('\n'), rest.size()));
  const std::size_t text = std::min(rest.find_first_not_of(" \t", marker), rest.size());
  return {line, column, std::string(rest.substr(0, std::min(marker, rest.size()))), std::string(rest.substr(text))};
}

/// Returns the end of the string literal, raw string or character that begins at `at`; `at` if none begins there.
std::size_t skip_literal(std::string_view text, std::size_t at) {
  const bool after_word = at > 0 && (std::isalnum(static_cast<unsigned char>(text[at - 1])) != 0);
  if (text[at] == '"' && at > 0 && text[at - 1] == 'R') {
    const std::size_t open = text.find('(', at);
    std::string end(1, ')');
    end.append(text.substr(at + 1, open - at - 1)).append(1, '"');
    return std::min(text.find(end, open), text.size() - end.size()) + end.size();
  }
  if (text[at] != '"' && (text[at] != '\'' || after_word)) return at;  // after a digit, ' separates digits
  std::size_t end = at + 1;
  while (end < text.size() && text[end] != text[at] && text[end] != '\n') end += text[end] == '\\' ? 2 : 1;
  return std::min(end + 1, text.size());
}

std::vector<CommentLine> cpp_comments(std::string_view text) {
  std::vector<CommentLine> lines;
  std::size_t line = 1;
  std::size_t begin = 0;  // of the line
  for (std::size_t at = 0; at < text.size();) {
    std::size_t end = skip_literal(text, at);
    if (end == at) end = at + 1;
    if (text.substr(at, 2) == "//") {
      lines.push_back(comment_line(text.substr(at), line, at - begin));
      end = std::min(text.find('\n', at), text.size());
    } else if (text.substr(at, 2) == "/*") {
      lines.push_back(comment_line(text.substr(at), line, at - begin));
      end = std::min(text.find("*/", at + 2), text.size() - 2) + 2;
    }
    for (; at < end; ++at) {
      if (text[at] != '\n') continue;
      ++line;
      begin = at + 1;
    }
  }
  return lines;
}

std::vector<CommentLine> hash_comments(std::string_view text) {
  std::vector<CommentLine> lines;
  std::size_t line = 1;
  for (std::size_t begin = 0; begin < text.size(); ++line) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    const std::string_view rest = text.substr(begin, end - begin);
    const std::size_t first = rest.find_first_not_of(" \t");
    // Behind code, two blanks tell a comment from a '#' within a string.
    const std::size_t behind = rest.find("  # ");
    if (first != std::string_view::npos && rest[first] == '#')
      lines.push_back(comment_line(rest.substr(first), line, first));
    else if (behind != std::string_view::npos)
      lines.push_back(comment_line(rest.substr(behind + 2), line, behind + 2));
    begin = end + 1;
  }
  return lines;
}

/// Does a comment, or a paragraph of it, begin with this line? Lines of one comment stand below each other.
bool begins_comment(const CommentLine& line, const CommentLine* before) {
  return before == nullptr || before->text.empty() || before->line + 1 != line.line || before->column != line.column ||
         before->marker != line.marker;
}

/// Something that product sources reach through one function of psring alone.
struct OneHome {
  std::string_view text;
  std::string_view home;  ///< the source that may use it
  std::string_view instead;
};

constexpr std::array kOneHome = {
    OneHome{"fmt::print(", "", "out::print or out::error (common/base/system/standard_files.h): fmt::print throws"},
    OneHome{"hardware_concurrency", "common/base/system/processors.cpp", "usable_processors() knows the CPU quota"},
    OneHome{"_SC_NPROCESSORS_CONF", "", "usable_processors() knows the CPU quota"},
    OneHome{"_SC_PAGESIZE", "common/device/pages.cpp", "page_bytes()"},
    OneHome{"_SC_PHYS_PAGES", "common/device/mapping.cpp", "host_memory_bytes()"},
};

bool is_refused(std::string_view text) {
  if (text.starts_with(kRefusedPhrase)) return true;
  const auto is_letter = [](char c) { return std::isalpha(static_cast<unsigned char>(c)) != 0; };
  const auto end = std::find_if_not(text.begin(), text.end(), is_letter);
  const std::string_view word = text.substr(0, static_cast<std::size_t>(end - text.begin()));
  return std::find(kRefusedWords.begin(), kRefusedWords.end(), word) != kRefusedWords.end();
}

std::vector<std::string> refused_comments(const Files& files) {
  std::vector<std::string> wrong;
  for (const auto& [path, text] : files) {
    const std::vector<CommentLine> lines = is_cpp(path) ? cpp_comments(text) : hash_comments(text);
    for (std::size_t i = 0; i < lines.size(); ++i)
      if (begins_comment(lines[i], i == 0 ? nullptr : &lines[i - 1]) && is_refused(lines[i].text))
        wrong.push_back(path + ":" + std::to_string(lines[i].line) +
                        ": begin with a subject and a verb: " + lines[i].marker + " " + lines[i].text);
  }
  return wrong;
}

std::vector<std::string> second_ways(const Files& files) {
  std::vector<std::string> wrong;
  for (const auto& [path, text] : files)
    for (const OneHome& one : kOneHome)
      if (is_cpp(path) && !path.starts_with("tests/") && !path.starts_with("docs/") && path != one.home &&
          text.find(one.text) != std::string::npos)
        wrong.push_back(path + " uses " + std::string(one.text) + ": " + std::string(one.instead));
  return wrong;
}

/// Sources that order memory in a weaker way than sequentially consistent, which x86 hides, without the reason in a
/// comment.
std::vector<std::string> unexplained_orders(const Files& files) {
  std::vector<std::string> wrong;
  for (const auto& [path, text] : files) {
    if (!is_cpp(path) || path.starts_with("tests/") || path.starts_with("docs/")) continue;
    const bool is_weak = std::ranges::any_of(
        std::array{"relaxed", "acquire", "release", "acq_rel", "consume"},
        [&](const std::string& order) { return text.find("memory_order_" + order) != std::string::npos; });
    const std::vector<CommentLine> lines = is_weak ? cpp_comments(text) : std::vector<CommentLine>();
    const bool says_why = std::ranges::any_of(
        lines, [](const CommentLine& line) { return line.text.find("emory order: ") != std::string::npos; });
    if (is_weak && !says_why)
      wrong.push_back(path + " orders memory in a weaker way: a comment 'Memory order: ...' has to say why it may");
  }
  return wrong;
}

std::vector<std::string> long_sources(const Files& files, const std::set<std::string>& generated) {
  std::vector<std::string> wrong;
  for (const auto& [path, text] : files) {
    if (!is_cpp(path) || path.starts_with("tests/") || generated.contains(path)) continue;
    const auto lines = static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n'));
    if (lines > kMostLines)
      wrong.push_back(path + " has " + std::to_string(lines) + " lines, more than " + std::to_string(kMostLines) +
                      ": split it by idea");
  }
  return wrong;
}

/// Sources that read the system's own files (/proc, /sys) with std::ifstream.
const std::set<std::string> kSystemReaders = {"bench/report.cpp",
                                              "cli/check/solution.cpp",
                                              "cli/doctor/doctor_checks.cpp",
                                              "cli/doctor/doctor_network.cpp",
                                              "cli/train/other_load.cpp",
                                              "cli/train/tasks.cpp",
                                              "common/base/system/control_group.cpp",
                                              "common/base/system/run_delay.cpp",
                                              "common/device/processor.cpp",
                                              "common/net/host.cpp",
                                              "common/proc/logs/memory_log.cpp",
                                              "view/live/run_files.cpp"};

/// std::ifstream waits for the writer of a named pipe, and reads a folder as an empty file.
std::vector<std::string> unchecked_readers(const Files& files, const std::set<std::string>& system_readers) {
  std::vector<std::string> wrong;
  for (const auto& [path, text] : files)
    if (is_cpp(path) && !path.starts_with("tests/") && !path.starts_with("docs/") && !system_readers.contains(path) &&
        text.find("std::ifstream") != std::string::npos)
      wrong.push_back(path +
                      " opens a file with std::ifstream: use common/base/system/file.h or common/base/text/text.h");
  return wrong;
}

}  // namespace

TEST_CASE("files are opened by the functions that check what a path is") {
  const Files files = read_files(PSRING_SOURCE);
  for (const std::string& reader : kSystemReaders) CHECK(files.contains(reader));
  for (const std::string& wrong : unchecked_readers(files, kSystemReaders)) FAIL_CHECK(wrong);
  CHECK(unchecked_readers({{"ring/a.cpp", "std::ifstream in(file);"}, {"ring/b.cpp", ""}}, {}).size() == 1);
  CHECK(unchecked_readers({{"ring/a.cpp", "std::ifstream in(file);"}}, {"ring/a.cpp"}).empty());
}

TEST_CASE("product sources are short, and comments begin with a subject") {
  const Files files = read_files(PSRING_SOURCE);
  REQUIRE(files.size() > 700);
  REQUIRE(files.contains("worker/model/layers/linear.cpp"));
  REQUIRE(files.contains("tests/house/source_rules_test.cpp"));
  REQUIRE(files.contains("scripts/format"));
  for (const std::string& generated : kGeneratedTables) CHECK(files.contains(generated));
  for (const std::string& wrong : long_sources(files, kGeneratedTables)) FAIL_CHECK(wrong);
  for (const std::string& wrong : refused_comments(files)) FAIL_CHECK(wrong);
  for (const std::string& wrong : second_ways(files)) FAIL_CHECK(wrong);
}

TEST_CASE("a source that orders memory in a weaker way says why it may") {
  for (const std::string& wrong : unexplained_orders(read_files(PSRING_SOURCE))) FAIL_CHECK(wrong);
  const std::string weak = "x.load(std::memory_order_relaxed);\n";
  CHECK(unexplained_orders({{"ring/a.cpp", weak}}).size() == 1);
  CHECK(unexplained_orders({{"ring/a.cpp", "// Memory order: a figure.\n" + weak}}).empty());
  CHECK(unexplained_orders({{"ring/a.cpp", "x.load(std::memory_order_seq_cst);\n"}}).empty());
  CHECK(unexplained_orders({{"tests/a.cpp", weak}}).empty());
}

TEST_CASE("output and the number of processors have one way each") {
  CHECK(second_ways({{"cli/a.cpp", "fmt::print(\"x\");"}}).size() == 1);
  CHECK(second_ways({{"cli/a.cpp", "std::thread::hardware_concurrency()"}}).size() == 1);
  CHECK(second_ways({{"cli/a.cpp", "out::print(\"x\");"}}).empty());
  CHECK(second_ways({{"tests/a.cpp", "fmt::print(\"x\");"}}).empty());
  CHECK(second_ways({{"common/base/system/processors.cpp", "std::thread::hardware_concurrency()"}}).empty());
}

TEST_CASE("formulas of dense parameters do not read tables") {
  const Files files = read_files(PSRING_SOURCE);
  for (const char* const path :
       {"worker/exchange/memory_formula.cpp", "worker/exchange/servers/servers_prediction.cpp",
        "worker/servers/server_bytes.cpp", "worker/exchange/workers/workers.cpp", "worker/exchange/whole_units.cpp",
        "common/base/pieces.cpp", "server/store/store.cpp", "worker/strategy/composition_prediction.cpp",
        "worker/servers/server_weights.cpp", "cli/memory/memory_formulas.cpp"}) {
    CAPTURE(path);
    REQUIRE(files.contains(path));
    CHECK(files.at(path).find("tables") == std::string::npos);
  }
}

TEST_CASE("a long source is refused outside of tests, unless it is a generated table") {
  const auto lines = [](std::size_t count) {
    std::string text;
    for (std::size_t i = 0; i < count; ++i) text += "int x;\n";
    return text;
  };
  CHECK(long_sources({{"ring/a.cpp", lines(400)}, {"ring/a.h", lines(3)}}, {}).empty());
  CHECK(long_sources({{"tests/ring/a_test.cpp", lines(900)}, {"scripts/a.py", lines(900)}}, {}).empty());
  CHECK(long_sources({{"ring/table.h", lines(900)}}, {"ring/table.h"}).empty());
  for (const char* const path : {"ring/a.cpp", "ring/a.h", "ring/cuda/a.cu", "ring/cuda/a.cuh"})
    CHECK(long_sources({{path, lines(401)}}, {"ring/table.h"}).size() == 1);
}

TEST_CASE("comments without a subject are found, wherever they stand") {
  const auto found = [](const std::string& path, const std::string& text) {
    return refused_comments({{path, text}}).size();
  };
  const auto refused = GENERATE(values<std::string>(
      {"// Of all ranks.\n", "/// What it does.\n", "///< Who\n", "  /// Those of a role.\n",
       "int x;  ///< What it is\n", "int x;  // So many at once.\n", "/* What a block says. */\n",
       "/// Returns it.\n///\n/// What follows.\n", "int a;  ///< first\n/// What b is.\nint b;\n",
       "auto s = \"http://x\";  // Of s.\n", "auto n = 1'000;  // Of n.\n", "auto c = '\"';  // Of c.\n",
       "auto r = R\"x(\" // )x\";  // Of r.\n", "/// One.\nint a;\n/// What's next.\n"}));
  CAPTURE(refused);
  CHECK(found("ring/a.h", refused) == 1);
  CHECK(found("tests/ring/a_test.cpp", refused) == 1);
}

TEST_CASE("comments with a subject, and texts that are no comments, pass") {
  const auto passed = GENERATE(values<std::string>(
      {"/// Returns the rank.\n", "/// Offset of the piece.\n", "/// Whatever comes is taken.\n",
       "/// Returns it.\n/// What\n", "int x;  ///< the sum\n        ///< What\n", "auto s = \"// What it is\";\n",
       "auto r = R\"(\n// What it is\n)\";\n", "// of all ranks\n"}));
  CAPTURE(passed);
  CHECK(refused_comments({{"ring/a.h", passed}}).empty());
}

TEST_CASE("comments of scripts and build files are read, too") {
  CHECK(refused_comments({{"cmake/a.cmake", "# What it installs.\n"}}).size() == 1);
  CHECK(refused_comments({{"scripts/a", "#!/bin/sh\nx=1  # Who calls\n"}}).size() == 1);
  CHECK(refused_comments({{"tests/a.py", "# A line.\n# What is next.\nx = '# What'\n"}}).empty());
  CHECK(has_hash_comments("scripts/a", "#!/bin/sh\n"));
  CHECK_FALSE(has_hash_comments("docs/a.md", "# What it is\n"));
}
