#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <thread>

#include <psring/c.h>
#include <psring/common/net/key.h>
#include <psring/common/proc/coordinator/coordinator_service.h>
#include <psring/common/proc/job.h>
#include <psring/tests/support/temporary_folder.h>

namespace psring::test {

/// A job's coordinator and servers in threads of this process, for workers that join through the C interface.
class CJobs {
 public:
  explicit CJobs(const JobOptions& job);

  /// The job of a program that uses collectives alone.
  static JobOptions collectives(std::size_t workers, const std::string& transport = "auto");

  /// Joins, and returns when all workers have. Throws std::runtime_error. The caller frees the job before this object
  /// goes, which waits for the servers.
  psring_job* join(std::int64_t rank) const;

 private:
  void serve();

  const SystemClock clock_;
  const TemporaryFolder folder_;
  const std::string key_file_ = folder_.file("job.key");
  std::optional<net::CoordinatorService> service_;
  std::deque<std::jthread> threads_;  ///< end with the job
};

}  // namespace psring::test
