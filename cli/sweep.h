#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace psring::cli {

/// Lists in a command's options: `--workers 2,4,8 --servers 1,n` stands for every combination of them, one point each;
/// n is the point's number of workers. Options whose values have commas of their own take no list, and
/// `--units` none of sets.
class Sweep {
 public:
  /// For the options that the command has so far. Must outlive the command's parsing.
  explicit Sweep(CLI::App& command);

  /// An option's value at a point, by the option's name without dashes.
  using Point = std::map<std::string, std::string>;
  /// Sets the options to each point's values in turn, the first list's values outermost, and calls `body`: with what
  /// is swept only. Without lists that is one point without values. Throws usage as parsing does.
  void for_each(const std::function<void(const Point&)>& body);

 private:
  struct State;
  std::shared_ptr<State> state_;  ///< shared with the options' transforms
};

}  // namespace psring::cli
