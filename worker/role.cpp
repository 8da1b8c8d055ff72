#include <cstdio>
#include <memory>
#include <optional>
#include <utility>

#include <psring/common/base/trace.h>
#include <psring/ring/ring_links.h>
#include <psring/ring/session.h>
#include <psring/ring/traced_group.h>
#include <psring/worker/metrics.h>
#include <psring/worker/role.h>
#include <psring/worker/training.h>

namespace psring::worker {
namespace {

/// What the servers' answers are stored into and pushes leave from, and what the workers share.
struct Memory {
  std::optional<Trace> trace;  ///< outlives what flies in it
  std::optional<Arena> arena;
  std::optional<ring::RingLinks> links;
  std::unique_ptr<ring::ProcessGroup> group;
  std::optional<Training> training;
};

net::Transport* link_to_servers(Membership& member, const TrainSetup& setup, Memory& memory,
                                const std::vector<net::Member>& servers) {
  const std::size_t count = member.job().servers;
  memory.arena.emplace(lent_bytes(setup.layout()));
  member.links().connect(servers, *memory.arena, member.deadline());
  net::Transport* transport = &member.links().transport();
  member.link().on_change([transport] { transport->wake(); });
  if (member.rank() == 0)
    fmt::print("each of {} servers holds {} of {} elements, padding counted\n", count,
               setup.layout().elements() / count, setup.layout().elements());
  for (const net::Member& server : servers)
    fmt::print("worker {}: {} through {}\n", member.rank(), to_string(server), transport->describe(server.peer));
  return transport;
}

void link_to_workers(Membership& member, const TrainSetup& setup, Memory& memory,
                     const std::vector<net::Member>& workers) {
  memory.group = ring::make_job_group(member, *memory.links, workers, lent_bytes(setup.layout()), member.job().overlap);
  if (memory.trace->on()) memory.group = ring::make_traced_group(std::move(memory.group), *memory.trace);
  if (member.rank() == 0)
    fmt::print("{}\n", memory.group->describe(ring::Collective::all_reduce, setup.layout().elements(), {}));
}

void train(Membership& member, const Registries& registries, const optim::OptimizerRegistry& optimizers) {
  const JobOptions& job = member.job();
  const TrainSetup setup(job, registries, optimizers);
  const auto memory = std::make_shared<Memory>();  // shared with the membership, whose links close last
  member.keep(memory);
  Trace& trace = memory->trace.emplace(member.clock(), job.trace);
  if (setup.strategy().ring) memory->links.emplace(member.key(), member.link_options(), member.bytes());
  const std::vector<net::Member> members = member.meet(memory->links ? memory->links->listen() : net::Addresses());
  net::Transport* transport = nullptr;
  if (setup.strategy().servers)
    transport = link_to_servers(member, setup, *memory, of_role(members, net::Role::server));
  if (memory->links) link_to_workers(member, setup, *memory, of_role(members, net::Role::worker));
  std::fflush(stdout);
  const Training::Surroundings surroundings{.rank = member.rank(),
                                            .memory = member.memory(),
                                            .clock = member.clock(),
                                            .trace = trace,
                                            .arena = memory->group   ? memory->group->arena()
                                                     : memory->arena ? &*memory->arena
                                                                     : nullptr,
                                            .transport = transport,
                                            .group = memory->group.get(),
                                            .check = [&] { member.link().check(); }};
  Training& training = memory->training.emplace(setup, surroundings);
  const OptimizerPlan plan = setup.optimizer();
  MetricsWriter metrics({.steps = setup.steps(), .lr = plan.lr, .schedule = plan.schedule}, member);
  metrics.measure(training);
  training.run(metrics);
  metrics.flush();
  if (!job.out.empty()) training.save(member.rank() == 0 ? job.out + "/model.safetensors" : "");
  member.send_trace(trace);
  member.link().on_change({});
  member.link().report(member.report_json(metrics.summary_json(training.predict())));
  member.link().done();
}

}  // namespace

void run_worker(const RoleOptions& options, const Registries& registries, const optim::OptimizerRegistry& optimizers) {
  run_role(options, net::Role::worker, [&](Membership& member) { train(member, registries, optimizers); });
}

}  // namespace psring::worker
