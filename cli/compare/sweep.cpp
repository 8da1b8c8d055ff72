#include <algorithm>
#include <optional>

#include <psring/cli/compare/sweep.h>
#include <psring/common/base/text/error.h>
#include <psring/common/base/text/text.h>
#include <psring/common/proc/options/table.h>

namespace psring::cli {

std::vector<std::string> split_links(const std::string& text) {
  std::vector<std::string> links;
  for (std::string& part : split(text)) {
    const char last = part.empty() ? ' ' : part.back();
    const bool is_delay = last == 's' || last == 'S';  // s, ms and us; rates end in a t
    if (is_delay && !links.empty() && links.back().find(',') == std::string::npos)
      links.back() += "," + part;
    else
      links.push_back(std::move(part));
  }
  return links;
}

struct Sweep::State {
  struct List {
    std::string option;  ///< its name
    Flag flag;
    std::vector<std::string> values;
  };
  std::vector<List> lists;  ///< in the order of the options
  bool setting = false;

  /// Returns the value that the parser sees: the first element of a list.
  std::string take(const Flag& flag, const std::string& text) {
    const std::string option = flag.name();
    const bool counts_workers = option == "servers";
    if (setting) return text;
    const bool sets = option == "units" && text.find('+') != std::string::npos;  // 0+3,1+2 is one
    const bool list = text.find(',') != std::string::npos && !sets;
    if (!list && !(counts_workers && text == "n")) return text;
    std::vector<std::string> values = option == "link" ? split_links(text) : split(text);
    if (values.size() == 1 && !counts_workers) return text;  // a link with its delay
    for (const std::string& value : values)
      if (value.empty() || std::count(values.begin(), values.end(), value) > 1)
        fail(ErrorKind::usage, "--{} {}: expected different values between commas", option, text);
    const std::string first = values.front();
    std::erase_if(lists, [&](const List& each) { return each.option == option; });
    lists.push_back({option, flag, std::move(values)});
    return first == "n" ? "1" : first;
  }

  void walk(std::size_t depth, Point& point, const std::function<void(const Point&)>& body) {
    if (depth == lists.size()) return body(point);
    List& list = lists[depth];
    const std::string& name = list.option;
    for (const std::string& value : list.values) {
      std::string real = value;
      if (name == "servers" && value == "n") real = point.contains("workers") ? point.at("workers") : workers();
      list.flag.set(real);
      point[name] = real;
      walk(depth + 1, point, body);
    }
    point.erase(name);
  }

  std::string workers() const {
    const std::string typed = workers_flag->text();
    return typed.empty() ? "2" : typed;
  }

  std::optional<Flag> workers_flag;
};

Sweep::Sweep(const Flags& command) : state_(std::make_shared<State>()) {
  for (Flag& flag : command.all()) {
    const std::string name = flag.name();
    if (name == "workers") state_->workers_flag = flag;
    const options::Option* const row = options::find(name);
    if (row == nullptr || !row->list || row->form == options::Form::flag) continue;
    flag.replace_text([state = state_, flag](const std::string& text) { return state->take(flag, text); });
  }
}

void Sweep::for_each(const std::function<void(const Point&)>& body) {
  // Workers come first, as --servers n is their number.
  std::stable_sort(state_->lists.begin(), state_->lists.end(),
                   [](const auto& a, const auto& b) { return a.option == "workers" && b.option != "workers"; });
  state_->setting = true;
  Point point;
  state_->walk(0, point, body);
  state_->setting = false;
}

}  // namespace psring::cli
