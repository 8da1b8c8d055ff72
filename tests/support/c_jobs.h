#pragma once

#include <optional>
#include <string>
#include <thread>

#include <catch2/catch.hpp>

#include <psring/c.h>
#include <psring/common/net/key.h>
#include <psring/common/proc/coordinator_service.h>
#include <psring/common/proc/job.h>
#include <psring/tests/support/temporary_folder.h>

namespace psring::test {

/// The coordinator of a job in a thread of this process, for members that join through the C interface.
class CJobs {
 public:
  explicit CJobs(std::size_t workers, const std::string& transport = "auto") {
    net::JobKey key = net::JobKey::generate();
    key.save(key_file_);
    JobOptions job;
    job.strategy = "ddp";
    job.workers = workers;
    job.servers = 0;
    job.transport = transport;
    net::CoordinatorService::Options options;
    options.plan.workers = static_cast<std::uint32_t>(workers);
    options.plan.job = to_json(job);
    options.run_folder = folder_.file("run");
    service_.emplace(std::move(options), key, clock_);
    thread_ = std::jthread([this] { service_->run(); });
  }

  psring_job* join(std::int64_t rank) const {
    const std::string endpoint = service_->endpoint();
    psring_join_options options{};
    options.size = sizeof options;
    options.endpoint = endpoint.c_str();
    options.key_file = key_file_.c_str();
    options.rank = rank;
    options.memory_bytes = std::size_t{1} << 20;
    psring_job* job = nullptr;
    const psring_status status = psring_join(&options, &job);
    if (status != PSRING_OK) throw std::runtime_error(psring_last_error());
    return job;
  }

 private:
  const SystemClock clock_;
  const TemporaryFolder folder_;
  const std::string key_file_ = folder_.file("job.key");
  std::optional<net::CoordinatorService> service_;
  std::jthread thread_;  ///< ends with the job
};

}  // namespace psring::test
