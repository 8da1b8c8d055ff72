#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include <psring/bench/exchange.h>
#include <psring/common/base/clock.h>
#include <psring/common/proc/local_cluster.h>

namespace psring::bench {

/// The server processes of a benchmark: this binary again, with the hidden subcommand `serve`. They, their key
/// and their logs go when it goes.
class Servers {
 public:
  Servers();
  ~Servers();
  Servers(const Servers&) = delete;
  Servers& operator=(const Servers&) = delete;

  /// Starts one and returns where it listens. `plan.key_file` and `plan.endpoint_fd` are filled in here.
  std::string start(ServerPlan plan);
  std::string key_file() const { return (folder_ / "job.key").string(); }
  /// A path in the benchmark's own folder.
  std::string file(const std::string& name) const { return (folder_ / name).string(); }

 private:
  const SystemClock clock_;
  std::filesystem::path folder_;
  std::size_t started_ = 0;
  LocalCluster cluster_;
};

}  // namespace psring::bench
