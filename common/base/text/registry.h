#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <psring/common/base/system/extension.h>
#include <psring/common/base/text/error.h>
#include <psring/common/base/text/spec.h>

namespace psring {

/// Maps names on the command line to factories of one kind of object: optimizers, models, data sets or strategies. A
/// factory receives the Spec and the other arguments of that kind. The App owns its registries; built-in and
/// user-defined names are added by the same `add`.
template <class T, class... Args>
class Registry {
 public:
  using Factory = std::function<std::unique_ptr<T>(const Spec&, Args...)>;

  /// `help` is one line for --help. Throws bug if the name is taken.
  void add(std::string name, std::string help, Factory factory) {
    const auto [at, added] = entries_.try_emplace(std::move(name), Entry{std::move(help), std::move(factory)});
    check(added, "the name '{}' is registered twice", at->first);
  }

  bool contains(const std::string& name) const { return entries_.contains(name); }

  /// Throws usage, naming the Spec's flag and the known names, if the name is unknown.
  std::unique_ptr<T> make(const Spec& spec, Args... args) const {
    const auto found = entries_.find(spec.name());
    if (found == entries_.end())
      fail(ErrorKind::usage, "{}: unknown name '{}'; known: {}", spec.flag(), spec.name(), names());
    return call_extension([&] { return fmt::format("{} {}", spec.flag(), spec.text()); },
                          [&] { return found->second.factory(spec, std::forward<Args>(args)...); });
  }

  /// Returns the sorted names: "adam, adamw, sgd".
  std::string names() const {
    std::string text;
    for (const std::string& name : list()) text += (text.empty() ? "" : ", ") + name;
    return text;
  }
  /// Returns the sorted names.
  std::vector<std::string> list() const {
    std::vector<std::string> all;
    for (const auto& [name, entry] : entries_) all.push_back(name);
    return all;
  }

  /// Returns one line for each name, with its help.
  std::string help() const {
    std::string lines;
    for (const auto& [name, entry] : entries_) lines += fmt::format("{:<16} {}\n", name, entry.help);
    return lines;
  }

 private:
  struct Entry {
    std::string help;
    Factory factory;
  };
  std::map<std::string, Entry> entries_;
};

}  // namespace psring
