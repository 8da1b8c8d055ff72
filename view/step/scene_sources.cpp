#include <algorithm>
#include <array>
#include <vector>

#include <psring/view/step/scene_sources.h>
#include <psring/view/step/source_texts.h>

namespace psring::view {
namespace {

/// Returns the line without the blanks around it; "" if the build did not embed the file.
std::string_view text_of(std::string_view path, std::size_t line) {
  for (const SourceText& file : source_texts()) {
    if (file.path != path) continue;
    std::string_view text = file.text;
    for (; line > 1; --line) {
      const std::size_t end = text.find('\n');
      if (end == text.npos) return "";
      text.remove_prefix(end + 1);
    }
    text = text.substr(0, text.find('\n'));
    const std::size_t begin = text.find_first_not_of(' ');
    return begin == text.npos ? "" : text.substr(begin);
  }
  return "";
}

/// Returns the place of the first `mark` outside of <…>, or npos.
std::size_t find_outside(std::string_view text, char mark, bool last = false) {
  std::size_t found = text.npos;
  int depth = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '<') ++depth;
    if (text[i] == '>') --depth;
    if (text[i] != mark || depth > 0) continue;
    found = i;
    if (!last) return found;
  }
  return found;
}

std::string without(std::string text, std::string_view part) {
  for (std::size_t at = text.find(part); at != text.npos; at = text.find(part)) text.erase(at, part.size());
  return text;
}

}  // namespace

std::string_view repository_path(std::string_view file) {
  constexpr std::array kFolders = {"/common/", "/optim/", "/ring/", "/server/", "/view/", "/worker/"};
  std::size_t cut = 0;
  for (const char* const folder : kFolders)
    if (const std::size_t at = file.rfind(folder); at != file.npos) cut = std::max(cut, at + 1);
  return file.substr(cut);
}

std::string short_function(std::string_view function) {
  std::string text = without(without(std::string(function), "(anonymous namespace)::"), "{anonymous}::");
  text = text.substr(0, find_outside(text, '('));
  if (const std::size_t lambda = text.find("::<lambda"); lambda != text.npos) text.resize(lambda);
  if (const std::size_t blank = find_outside(text, ' ', true); blank != text.npos) text.erase(0, blank + 1);
  text.erase(0, text.find_first_not_of("*&"));
  std::vector<std::string> names;  // of classes, then of the function
  for (;;) {
    const std::size_t end = find_outside(text, ':');
    const std::string name = text.substr(0, end);
    const bool is_namespace = end != text.npos && !name.empty() && name[0] >= 'a' && name[0] <= 'z';
    if (!is_namespace) names.push_back(name);
    if (end == text.npos) break;
    text.erase(0, end + 2);
  }
  std::string joined = names.front();
  for (std::size_t i = 1; i < names.size(); ++i) joined += "::" + names[i];
  return joined;
}

std::optional<std::size_t> SceneSources::number(const std::source_location& source) {
  if (source.line() == 0) return std::nullopt;
  const std::string path(repository_path(source.file_name()));
  const auto [at, is_new] = numbers_.try_emplace({path, source.line()}, list_.size());
  if (is_new) {
    Json json = {{"file", path}, {"line", source.line()}, {"function", short_function(source.function_name())}};
    if (const std::string_view text = text_of(path, source.line()); !text.empty()) json["text"] = text;
    list_.push_back(std::move(json));
  }
  return at->second;
}

}  // namespace psring::view
