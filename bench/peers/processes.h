#pragma once

#include <filesystem>
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include <psring/bench/exchange/exchange.h>
#include <psring/common/base/clock.h>
#include <psring/common/proc/guarded_folder.h>
#include <psring/common/proc/local_cluster.h>

namespace psring::bench {

/// Returns the words that start this program with a hidden subcommand and its options.
std::vector<std::string> own_command(const char* name,
                                     std::initializer_list<std::pair<const char*, std::string>> options);

/// A temporary folder of the benchmark, which contains a job's key.
class BenchFolder {
 public:
  BenchFolder();

  const std::filesystem::path& path() const { return folder_.path(); }
  std::string key_file() const { return file("job.key"); }
  std::string logs() const { return file("logs"); }
  std::string file(const std::string& name) const { return (path() / name).string(); }

 private:
  const GuardedFolder folder_;
};

/// The server processes of a benchmark: this program with the hidden subcommand `serve`. The destructor ends them and
/// removes their key and logs.
class ServerProcesses {
 public:
  ServerProcesses();
  ~ServerProcesses();
  ServerProcesses(const ServerProcesses&) = delete;
  ServerProcesses& operator=(const ServerProcesses&) = delete;

  /// Starts a server and returns its endpoint. Sets `plan.key_file` and `plan.endpoint_fd`.
  std::string start(ServerPlan plan);
  std::string key_file() const { return folder_.key_file(); }
  LocalCluster& cluster() { return cluster_; }
  /// Returns a path in the benchmark's own folder.
  std::string file(const std::string& name) const { return folder_.file(name); }

 private:
  const SystemClock clock_;
  const BenchFolder folder_;
  std::size_t started_ = 0;
  LocalCluster cluster_;
};

}  // namespace psring::bench
