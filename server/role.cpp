#include <memory>

#include <nlohmann/json.hpp>
#include <unistd.h>

#include <psring/common/base/parallel.h>
#include <psring/common/base/trace.h>
#include <psring/common/device/arena.h>
#include <psring/common/proc/fault.h>
#include <psring/optim/job_optimizer.h>
#include <psring/optim/schedule.h>
#include <psring/server/checkpoint.h>
#include <psring/server/role.h>
#include <psring/server/server.h>

namespace psring::server {
namespace {

/// What a server lends server 0: sums are small, and go through the link's own memory.
constexpr std::size_t kNothing = std::size_t{64} << 10;

std::size_t host_memory_bytes() {
  return static_cast<std::size_t>(::sysconf(_SC_PHYS_PAGES)) * static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
}

/// By worker.
nlohmann::ordered_json json_of(const std::vector<StalenessRecord>& records) {
  auto list = nlohmann::ordered_json::array();
  for (const StalenessRecord& of : records)
    list.push_back({{"updates", of.updates},
                    {"dropped", of.dropped},
                    {"sum", of.sum},
                    {"most", of.most},
                    {"most_lag", of.most_lag},
                    {"bins", of.bins}});
  return list;
}

void serve_job(Membership& member, const Registry<Aggregator>& aggregators,
               const optim::OptimizerRegistry& optimizers) {
  const JobOptions& job = member.job();
  const auto aggregator = job.local_reduce && job.aggregate == "mean"
                              ? make_mean_of(job.workers)
                              : aggregators.make(Spec::parse("--aggregate", job.aggregate));
  const auto codec = optim::make_codec(job.compress, job.error_feedback);
  const auto optimizer = optim::make_optimizer(optimizers, job);
  const auto schedule = optim::make_schedule(Spec::parse("--schedule", job.schedule), job.steps.value_or(1));
  const bool applies = job.optimizer_on == "server";

  // Both shared with the membership, whose links close last: they may still read what the shard answered with.
  const auto arena = std::make_shared<Arena>(kNothing);
  member.keep(arena);
  const std::vector<net::Member> members = member.meet(member.links().listen());
  std::vector<net::Member> servers = of_role(members, net::Role::server);
  const std::size_t pushers =
      job.local_reduce ? first_of_each_host(of_role(members, net::Role::worker)).size() : job.workers;
  if (member.rank() > 0) {
    servers.resize(1);  // server 0, which collects verdicts
    member.links().connect(servers, *arena, member.deadline());
  }
  net::Transport& transport = member.links().transport();
  Parallel parallel(job.server_threads);
  ShardOptions options{.rank = member.rank(),
                       .servers = static_cast<std::uint32_t>(job.servers),
                       .workers = static_cast<std::uint32_t>(job.workers),
                       .pushers = static_cast<std::uint32_t>(pushers),
                       .lr = job.lr.value_or(optimizer->default_lr()),
                       .clip_norm = applies ? job.clip_norm : 0,
                       .loss_scaler = applies ? optim::loss_scaler(job) : optim::LossScaler(),
                       .master_copy = job.master_copy,
                       .optimizer = applies ? optimizer.get() : nullptr,
                       .schedule = applies ? schedule.get() : nullptr,
                       .aggregator = aggregator.get(),
                       .codec = codec.get(),
                       .seed = job.seed,
                       .consistency = parse_consistency(job.consistency, job.backup_workers),
                       .remedy = parse_remedy(job.remedy),
                       .memory_bytes = host_memory_bytes(),
                       .saves = !job.checkpoint_folder().empty()};
  begin_from_checkpoint(job, options);
  const auto held = std::make_shared<Shard>(options, parallel, member.memory());
  member.keep(held);
  Shard& shard = *held;
  Trace trace(member.clock(), job.trace);
  member.link().on_change([&] { transport.wake(); });
  const FaultTrigger fault(job.fault, member.self());
  const auto finished = [&] {
    fault.at(shard.version());
    member.link().check();
    return member.link().finished();
  };
  serve(shard, transport, member.clock(), finished, &trace,
        [&](std::uint64_t step) { write_part(job, member.rank(), shard, step); });
  member.link().on_change({});
  member.send_trace(trace);
  fmt::print("server {}: {}, version {}\n", member.rank(), shard.describe(), shard.version());
  member.link().report(member.report_json(nlohmann::ordered_json{
      {"elements", shard.elements()},
      {"version", shard.version()},
      {"text", shard.describe()},
      {"staleness",
       json_of(shard.staleness())}}.dump()));
}

}  // namespace

void run_server(const RoleOptions& options, const Registry<Aggregator>& aggregators,
                const optim::OptimizerRegistry& optimizers) {
  run_role(options, net::Role::server, [&](Membership& member) { serve_job(member, aggregators, optimizers); });
}

void run_server(Membership& member, const Registry<Aggregator>& aggregators,
                const optim::OptimizerRegistry& optimizers) {
  run_role(member, [&](Membership& joined) { serve_job(joined, aggregators, optimizers); });
}

}  // namespace psring::server
