#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <psring/common/base/clock.h>
#include <psring/common/base/text/error.h>
#include <psring/common/proc/local_cluster.h>
#include <psring/ring/process_group.h>

namespace psring::cli {

/// The ranks of a command that divides its work among processes of this host. The process that the user started is rank
/// 0; it starts the others with its own command line. They share memory, and each runs the whole command; only rank 0
/// prints. If a rank is lost, all others end.
class TensorRanks {
 public:
  /// The place of a process that rank 0 has started; hidden options.
  struct Place {
    std::size_t rank = 0;
    std::string key_file;  ///< with the key that all ranks share
  };

  /// At rank 0: starts the others. `words`: this command line; `bytes`: of each rank's memory for exchanges.
  /// REQUIRES: called in the main thread.
  TensorRanks(std::size_t ranks, const Place& place, std::size_t bytes, const std::vector<std::string>& words);
  ~TensorRanks();
  TensorRanks(const TensorRanks&) = delete;
  TensorRanks& operator=(const TensorRanks&) = delete;

  ring::ProcessGroup& group() { return *group_; }
  /// Runs a body that calls the group's collectives. At rank 0 returns once all ranks have ended; throws peer_lost,
  /// naming the rank, if one was lost, and the error of a rank that failed.
  void run(const std::function<void()>& body);

 private:
  void start_others(std::size_t ranks, const std::filesystem::path& folder, std::vector<std::string> words,
                    const std::string& key_file);
  void check_others();
  void await_others();
  [[noreturn]] void lose(const ProcessExit& exit);
  Error error_of(ProcessExit exit);
  Error cause_of(const Error& error);

  const SystemClock clock_;
  std::unique_ptr<LocalCluster> others_;  ///< at rank 0
  std::optional<ProcessExit> done_;       ///< the first of the others that ended as it should
  Moment done_at_{};
  std::optional<Error> loss_;  ///< of a rank, which ended this group
  std::unique_ptr<ring::ProcessGroup> group_;
};

}  // namespace psring::cli
