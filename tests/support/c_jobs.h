#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <thread>

#include <psring/c.h>
#include <psring/common/net/key.h>
#include <psring/common/proc/coordinator/coordinator_service.h>
#include <psring/common/proc/job.h>
#include <psring/common/proc/role_options.h>
#include <psring/optim/optimizers.h>
#include <psring/tests/support/temporary_folder.h>

namespace psring::test {

/// A job's coordinator and servers in threads of this process, for workers that join through the C interface, or as
/// programs do in C++.
class CJobs {
 public:
  /// `add`: adds the servers' own rules.
  explicit CJobs(const JobOptions& job, std::function<void(optim::OptimizerRegistry&)> add = {});

  /// The job of a program that uses collectives alone.
  static JobOptions collectives(std::size_t workers, const std::string& transport = "auto");

  /// Joins, and returns when all workers have. Throws std::runtime_error. The caller frees the job before this object
  /// goes, which waits for the servers.
  psring_job* join(std::int64_t rank) const;
  RoleOptions role(std::uint32_t rank) const { return {service_->endpoint(), key_file_, rank}; }

  /// Waits until the job has ended; returns what ended it, "" if all went well.
  std::string cause();

 private:
  void serve();

  const SystemClock clock_;
  const std::function<void(optim::OptimizerRegistry&)> add_;
  const TemporaryFolder folder_;
  const std::string key_file_ = folder_.file("job.key");
  std::optional<net::CoordinatorService> service_;
  net::JobResult result_;             ///< once the threads have ended
  std::deque<std::jthread> threads_;  ///< end with the job
};

/// Throws std::runtime_error with the last error's line unless it holds: Catch belongs to one thread.
void need(bool holds, const std::string& what);
inline void ok(psring_status status, const std::string& what) { need(status == PSRING_OK, what); }

/// Joins with all workers, calls `body` for each in a thread of its own, and leaves. Returns the lines of their errors.
std::string run(const JobOptions& options, const std::function<void(psring_job*)>& body);

}  // namespace psring::test
