#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

#include <psring/common/base/text/error.h>
#include <psring/common/base/text/registry.h>
#include <psring/common/proc/role.h>
#include <psring/optim/optimizers.h>
#include <psring/server/role.h>
#include <psring/tests/support/c_jobs.h>

namespace psring::test {

CJobs::CJobs(const JobOptions& job, std::function<void(optim::OptimizerRegistry&)> add) : add_(std::move(add)) {
  net::JobKey key = net::JobKey::generate();
  key.save(key_file_);
  net::CoordinatorService::Options options;
  options.plan.workers = static_cast<std::uint32_t>(job.workers);
  options.plan.servers = static_cast<std::uint32_t>(job.servers);
  options.plan.job = to_json(job);
  options.run_folder = folder_.file("run");
  service_.emplace(std::move(options), key, clock_);
  threads_.emplace_back([this] { result_ = service_->run(); });
  for (std::size_t server = 0; server < job.servers; ++server) threads_.emplace_back([this] { serve(); });
}

std::string CJobs::cause() {
  threads_.clear();
  return result_.failure ? result_.failure->what() : "";
}

JobOptions CJobs::collectives(std::size_t workers, const std::string& transport) {
  JobOptions job;
  job.strategy = "ddp";
  job.workers = workers;
  job.servers = 0;
  job.transport = transport;
  return job;
}

void CJobs::serve() {
  Registry<server::Aggregator> aggregators;
  server::register_builtin_aggregators(aggregators);
  optim::OptimizerRegistry optimizers;
  optim::register_builtin_optimizers(optimizers);
  if (add_) add_(optimizers);
  try {
    Membership member({.endpoint = service_->endpoint(), .key_file = key_file_}, net::Role::server);
    server::run_server(member, aggregators, optimizers);
  } catch (const Error&) {  // the worker was told of it, or caused it
  }
}

psring_job* CJobs::join(std::int64_t rank) const {
  const std::string endpoint = service_->endpoint();
  psring_join_options options{};
  options.size = sizeof options;
  options.endpoint = endpoint.c_str();
  options.key_file = key_file_.c_str();
  options.rank = rank;
  options.memory_bytes = std::size_t{1} << 20;
  psring_job* job = nullptr;
  if (psring_join(&options, &job) != PSRING_OK) throw std::runtime_error(psring_last_error());
  return job;
}

void need(bool holds, const std::string& what) {
  if (!holds) throw std::runtime_error(what + ": " + psring_last_error());
}

std::string run(const JobOptions& options, const std::function<void(psring_job*)>& body) {
  const CJobs jobs(options);
  std::vector<std::string> errors(options.workers);
  {
    std::vector<std::jthread> threads;
    for (std::size_t rank = 0; rank < options.workers; ++rank)
      threads.emplace_back([&, rank] {
        psring_job* job = nullptr;
        try {
          job = jobs.join(static_cast<std::int64_t>(rank));
          body(job);
          ok(psring_leave(job, 60), "leave");
        } catch (const std::exception& error) {
          errors[rank] = error.what();
        }
        psring_free(job);
      });
  }
  std::string all;
  for (const std::string& error : errors) all += error;
  return all;
}

}  // namespace psring::test
