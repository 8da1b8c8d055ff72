#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <psring/cli/options/flags.h>

namespace psring::cli {

/// Splits a list of links. A delay belongs to the rate before it: 1gbit,0.2ms,10gbit has two links.
std::vector<std::string> split_links(const std::string& text);

/// Lists in the options of a command: `--workers 2,4,8 --servers 1,n` stands for every combination, one point each; n
/// is the point's number of workers. An option whose values hold commas takes no list (options::Option::list), and
/// neither does `--units` if the value has sets of layers, such as 0+3,1+2.
class Sweep {
 public:
  /// Takes the options of a job that the command has so far. The object must outlive the command's parsing.
  explicit Sweep(const Flags& command);

  /// An option's value at a point, by the option's name without dashes.
  using Point = std::map<std::string, std::string>;
  /// Sets the options to the values of each point in turn, the first list outermost, and calls `body` with the options
  /// that have lists. Without lists there is one point, which is empty. Throws usage as parsing does.
  void for_each(const std::function<void(const Point&)>& body);

 private:
  struct State;
  std::shared_ptr<State> state_;  ///< shared with the options' transforms
};

}  // namespace psring::cli
