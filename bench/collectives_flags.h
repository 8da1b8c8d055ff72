#pragma once

#include <cstddef>
#include <initializer_list>
#include <optional>
#include <string>
#include <vector>

#include <psring/bench/collectives.h>
#include <psring/bench/peers/psring_rank.h>

namespace CLI {
class App;
}

namespace psring::bench {

/// The commands of the collectives, and the hidden command of their rank processes.
class CollectivesFlags {
 public:
  void add(CLI::App& root);
  /// Runs the given command; returns nothing if it is not one of these. Throws usage.
  std::optional<int> run(const CLI::App& root);

 private:
  void add_options(CLI::App& command);
  void add_rank(CLI::App& root);
  void settle();
  void settle_sizes();
  void check_tuning(const CLI::App& command) const;

  CollectivesOptions options_;
  PsringRankOptions rank_;
  std::string begin_ = "8";
  std::string end_ = "64M";
  std::size_t factor_ = 8;
  std::vector<std::string> sizes_;
  std::string dtype_ = "f32";
  std::string redop_ = "sum";
  std::string segment_;
  std::string encrypt_ = "off";
  bool unregistered_ = false;
};

/// Throws usage, naming the flag and the known values, if `value` is not one of them.
void one_of(const char* flag, std::string_view value, std::initializer_list<std::string_view> known);

}  // namespace psring::bench
