// Two types of one qualified name: each source compiles, and the linker silently takes the member functions of one of
// them.
#include <cctype>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <catch2/catch.hpp>

namespace {

namespace fs = std::filesystem;

bool is_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

/// Returns the position after a comment, a literal or a preprocessor line that begins at `at`; `at` where none begins.
std::size_t skipped(std::string_view text, std::size_t at) {
  const auto after = [&](std::string_view end, std::size_t from) {
    const std::size_t found = text.find(end, from);
    return found == std::string_view::npos ? text.size() : found + end.size();
  };
  const std::string_view rest = text.substr(at);
  if (rest.starts_with("//")) return after("\n", at);
  if (rest.starts_with("/*")) return after("*/", at + 2);
  if (rest.starts_with("R\"")) {
    const std::size_t open = text.find('(', at);
    std::string end(text.substr(at + 1, open - at));  // '"', the delimiter and '(', turned round
    std::swap(end.front(), end.back());
    end.front() = ')';
    return after(end, open);
  }
  if (rest[0] == '#') {
    std::size_t end = after("\n", at);
    while (end >= 2 && text[end - 2] == '\\') end = after("\n", end);
    return end;
  }
  const bool digit_mark = rest[0] == '\'' && at > 0 && is_word(text[at - 1]);
  if ((rest[0] != '"' && rest[0] != '\'') || digit_mark) return at;
  std::size_t end = at + 1;
  while (end < text.size() && text[end] != rest[0]) end += text[end] == '\\' ? 2 : 1;
  return end + 1;
}

std::vector<std::string> tokens_of(std::string_view text) {
  std::vector<std::string> tokens;
  for (std::size_t at = 0; at < text.size();) {
    if (const std::size_t next = skipped(text, at); next != at) {
      at = next;
      continue;
    }
    std::size_t end = at + 1;
    if (is_word(text[at])) {
      while (end < text.size() && is_word(text[end])) ++end;
    } else if (text.substr(at, 2) == "::") {
      end = at + 2;
    }
    if (std::isspace(static_cast<unsigned char>(text[at])) == 0) tokens.emplace_back(text.substr(at, end - at));
    at = end;
  }
  return tokens;
}

using Tokens = std::vector<std::string>;

/// Removes a bracketed group from the front of `head`, where one begins with `open`.
void drop_group(Tokens& head, std::string_view open, std::string_view close) {
  int depth = 0;
  while (!head.empty()) {
    depth += head.front() == open ? 1 : head.front() == close ? -1 : 0;
    head.erase(head.begin());
    if (depth == 0) return;
  }
}

/// The name of the type that a head (the tokens before '{') defines. A specialisation of a template has none.
std::optional<std::string> type_of(Tokens head) {
  const auto takes = [&](std::string_view token) {
    const bool found = !head.empty() && head.front() == token;
    if (found) head.erase(head.begin());
    return found;
  };
  if (takes("template")) drop_group(head, "<", ">");
  if (!takes("struct") && !takes("class") && !takes("union") && !takes("enum")) return std::nullopt;
  if (!takes("class")) takes("struct");
  while (!head.empty() && head.front() == "[") drop_group(head, "[", "]");
  if (takes("alignas")) drop_group(head, "(", ")");
  std::string name;
  while (!head.empty() && head.front() != "final" && (head.front() == "::" || is_word(head.front()[0]))) {
    name += head.front();
    head.erase(head.begin());
  }
  const bool defined = head.empty() || head.front() == ":" || head.front() == "final";
  return defined && !name.empty() ? std::optional(name) : std::nullopt;
}

/// The qualified names of the types that a source defines in named namespaces.
std::vector<std::string> types_of(std::string_view text) {
  std::vector<std::string> types;
  std::vector<std::optional<std::string>> scopes;  // the namespaces around, as prefixes; nothing for other braces
  Tokens head;
  for (const std::string& token : tokens_of(text)) {
    if (token == "{") {
      std::optional<std::string> scope;
      const bool in_namespace = scopes.empty() || scopes.back().has_value();
      const std::string around = in_namespace && !scopes.empty() ? *scopes.back() : "";
      if (in_namespace && !head.empty() && head.front() == "namespace") {
        scope = around;
        for (std::size_t i = 1; i < head.size(); ++i)
          if (head[i] != "::") *scope += head[i] + "::";
        if (head.size() == 1) scope.reset();  // nothing outside of this source sees what is in it
      } else if (in_namespace && head.size() == 1 && head.front() == "extern") {
        scope = around;
      } else if (in_namespace) {
        if (const auto type = type_of(head)) types.push_back(around + *type);
      }
      scopes.push_back(scope);
      head.clear();
    } else if (token == "}") {
      REQUIRE_FALSE(scopes.empty());
      scopes.pop_back();
      head.clear();
    } else if (token == ";") {
      head.clear();
    } else {
      head.push_back(token);
    }
  }
  REQUIRE(scopes.empty());
  return types;
}

}  // namespace

TEST_CASE("types are found by their qualified names") {
  CHECK(types_of(R"source(
    #define TYPE(name) \
      struct name {};
    namespace a::b { struct One : Base { struct Inner {}; }; enum class Two : int { x = '{' }; }
    namespace a { template <class T> class [[nodiscard]] Three final {}; template <> struct Three<int> {};
                  struct Declared; auto text = "struct Not {"; struct One::Four {}; int five = 1'000; }
    namespace { struct Own {}; namespace deeper { struct Own {}; } }
    int f() { struct Local {}; return 0; }
    extern "C" { struct Six {}; }
  )source") == std::vector<std::string>{"a::b::One", "a::b::Two", "a::Three", "a::One::Four", "Six"});
}

TEST_CASE("every type of the libraries has one definition") {
  std::map<std::string, std::string> file_of;
  for (const char* const top : {"bench", "cli", "common", "optim", "ring", "server", "view", "worker"}) {
    for (const auto& entry : fs::recursive_directory_iterator(fs::path(PSRING_SOURCE) / top)) {
      const std::string extension = entry.path().extension().string();
      if (extension != ".h" && extension != ".cpp" && extension != ".cu" && extension != ".cuh") continue;
      const std::string path = entry.path().lexically_relative(PSRING_SOURCE).generic_string();
      INFO(path);
      std::ifstream in(entry.path(), std::ios::binary);
      for (const std::string& type : types_of(std::string{std::istreambuf_iterator<char>(in), {}})) {
        INFO(type << " is defined in " << file_of[type] << " as well");
        CHECK(file_of[type].empty());
        file_of[type] = path;
      }
    }
  }
  CHECK(file_of.size() > 500);
}
