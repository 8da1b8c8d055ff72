#include <memory>
#include <optional>

#include <psring/common/base/trace.h>
#include <psring/common/net/zmq_channel.h>
#include <psring/worker/metrics.h>
#include <psring/worker/role.h>
#include <psring/worker/training.h>

namespace psring::worker {
namespace {

/// What the servers' answers are stored into and pushes leave from.
struct Memory {
  std::optional<Arena> arena;
  std::optional<Training> training;
};

void train(Membership& member, const Registries& registries, const optim::OptimizerRegistry& optimizers) {
  const JobOptions& job = member.job();
  const TrainSetup setup(job, registries, optimizers);
  const auto memory = std::make_shared<Memory>();  // shared with the membership, whose links close last
  member.keep(memory);
  net::Transport* transport = nullptr;
  const std::vector<net::Member> servers = member.meet({}, net::Role::server);
  if (setup.strategy().servers) {
    memory->arena.emplace(lent_bytes(setup.layout()));
    member.links().connect(servers, *memory->arena, member.deadline());
    transport = &member.links().transport();
    member.link().on_change([transport] { transport->wake(); });
    if (member.rank() == 0)
      fmt::print("each of {} servers holds {} of {} elements, padding counted\n", job.servers,
                 setup.layout().elements() / job.servers, setup.layout().elements());
    for (const net::Member& server : servers)
      fmt::print("worker {}: {} through {}\n", member.rank(), to_string(server), transport->describe(server.peer));
  }
  Trace trace(member.clock(), job.trace);
  const Training::Surroundings surroundings{.rank = member.rank(),
                                            .memory = member.memory(),
                                            .clock = member.clock(),
                                            .trace = trace,
                                            .arena = memory->arena ? &*memory->arena : nullptr,
                                            .transport = transport,
                                            .check = [&] { member.link().check(); }};
  Training& training = memory->training.emplace(setup, surroundings);
  const OptimizerPlan plan = setup.optimizer();
  MetricsWriter metrics({.steps = setup.steps(), .lr = plan.lr, .schedule = plan.schedule}, member);
  metrics.measure(training);
  training.run(metrics);
  metrics.flush();
  if (member.rank() == 0 && !job.out.empty()) training.save(job.out + "/model.safetensors");
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
