#include <cstddef>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <utility>
#include <vector>

#include <psring/common/base/text/error.h>
#include <psring/common/net/transport.h>
#include <psring/common/proc/role.h>
#include <psring/ring/hier/group.h>
#include <psring/ring/inner_group.h>
#include <psring/ring/link/group.h>
#include <psring/ring/link/options.h>
#include <psring/ring/request.h>
#include <psring/view/step/simulation.h>
#include <psring/view/step/watched_group.h>
#include <psring/worker/exchange/mesh/mesh_groups.h>
#include <psring/worker/training.h>

namespace psring::view {
namespace {

/// A simulated group, and the inner group that all its messages pass, which goes on while the rank computes.
struct SimulatedGroup {
  std::unique_ptr<ring::ProcessGroup> group;
  ring::InnerGroup* messages = nullptr;  ///< part of the group
};

/// Numbers of the groups within hosts, which no group between hosts has.
constexpr std::uint32_t kWithin = std::uint32_t{1} << 20;

/// The ranks of one host, in a group of messages. As in shared memory, each rank takes its part from every other rank
/// at once.
class WithinHost final : public ring::InnerGroup {
 public:
  explicit WithinHost(std::unique_ptr<ring::InnerGroup> messages)
      : ring::InnerGroup(messages->rank(), messages->size()), messages_(std::move(messages)) {}

  std::unique_ptr<ring::InnerGroup> part(const std::vector<std::size_t>& ranks, std::uint32_t id,
                                         std::vector<std::size_t> names) override {
    return std::make_unique<WithinHost>(messages_->part(ranks, kWithin + id, std::move(names)));
  }
  ring::Work start(const ring::Request& request) override { return messages_->start(request); }
  std::string describe(ring::Collective collective, std::size_t count, ring::ElementType type) const override {
    return messages_->describe(collective, count, type);
  }
  std::string way(ring::Collective collective, std::size_t count, ring::ElementType type) const override {
    return messages_->way(collective, count, type);
  }
  ring::Cost predict(ring::Collective collective, std::size_t count, ring::ElementType type, const ring::Parts& parts,
                     std::size_t root) const override {
    return messages_->predict(collective, count, type, parts, root);
  }
  bool sums_in_rank_order(ring::Collective reduction, ring::ElementType type) const override {
    return messages_->sums_in_rank_order(reduction, type);
  }
  ring::Moved moved() const override { return messages_->moved(); }
  /// The links between hosts are advanced, too, and take the messages of all groups: a second look would take time.
  void advance() override {}
  void rest(std::uint32_t seen, Moment until) override { messages_->rest(seen, until); }
  void probe() override { messages_->probe(); }
  void break_off(const Error& error) noexcept override { messages_->break_off(error); }
  std::optional<Error> broken() const override { return messages_->broken(); }

 private:
  const std::unique_ptr<ring::InnerGroup> messages_;
};

/// A hierarchical group as ring::RingLinks makes it over several hosts, except that messages stand for the shared
/// memory within each host. `host_of`: each rank's host. REQUIRES: the transport outlives the group.
SimulatedGroup make_simulated_hosts(net::Transport& transport, std::size_t rank,
                                    const std::vector<std::size_t>& host_of, const ring::LinkOptions& options) {
  auto links = ring::make_link_group(transport, rank, host_of.size(), options);
  std::vector<std::size_t> near;
  for (std::size_t other = 0; other < host_of.size(); ++other)
    if (host_of[other] == host_of[rank]) near.push_back(other);
  auto host = std::make_unique<WithinHost>(ring::make_direct_part(*links, near, kWithin));
  SimulatedGroup made{nullptr, links.get()};
  made.group =
      ring::make_hierarchical_group(std::move(host), std::move(links), rank, host_of, options.group, options.clock);
  return made;
}

class StepCounter final : public ReportListener {
 public:
  explicit StepCounter(std::vector<std::uint64_t>& steps) : steps_(steps) {}
  void on_step(const StepReport& report) override { steps_.push_back(report.step); }
  void on_evaluation(const Evaluation& /*evaluation*/) override {}

 private:
  std::vector<std::uint64_t>& steps_;
};

/// The network's clock for a worker: while the worker computes, its collectives go on, as they do in the background
/// thread of a process.
class ComputingClock final : public Clock {
 public:
  explicit ComputingClock(const Clock& clock) : clock_(clock) {}

  /// Null: no collectives.
  void drive(ring::InnerGroup* group) { group_ = group; }
  Moment now() const override { return clock_.now(); }
  void sleep_until(Moment moment) const override {
    if (group_ == nullptr) return clock_.sleep_until(moment);
    while (clock_.now() < moment) group_->rest(group_->watch(), moment);
  }

 private:
  const Clock& clock_;
  ring::InnerGroup* group_ = nullptr;
};

/// A worker; like worker/role.cpp.
class SimulatedWorker final : public SimulatedRole {
 public:
  SimulatedWorker(Simulation& simulation, SimulatedControl::Link& link, std::size_t place)
      : simulation_(simulation),
        link_(link),
        place_(place),
        kills_(simulation, place),
        clock_(simulation.network.clock()),
        setup_(simulation.options.job, simulation.names.workers, simulation.names.optimizers) {}

  void live_epoch() override {
    const std::vector<net::Member> members = link_.meet(reached_, kept_.has_value());
    const std::vector<net::Member> workers = of_role(members, net::Role::worker);
    setup_.share_among(workers.size());
    const bool stays = setup_.strategy().ring || setup_.job().goes_on();
    simulation_.run.left = setup_.job().workers;
    ProcessLinks links(simulation_, place_, link_, members, stays);
    ProcessEvents stream(simulation_, place_, link_.self(), memory_);
    SplitLinks split(links.transport());
    const worker::StrategyKind& strategy = setup_.strategy();
    const SimulatedGroup made =
        strategy.ring || strategy.scatters ? make_group(split.collectives(), workers) : SimulatedGroup{};
    ring::ProcessGroup* const group = made.group.get();
    if (group != nullptr) group->report_to(stream.events());
    clock_.drive(made.messages);
    const std::optional<worker::MeshGroups> mesh = take_part(group);
    worker::Training training(setup_,
                              {.rank = {link_.rank()},
                               .shard_groups = shard_groups(setup_.job(), workers),
                               .replicas = setup_.job().replicas},
                              {.memory = memory_,
                               .clock = clock_,
                               .events = stream.events(),
                               .transport = strategy.has_servers() ? &split.others() : nullptr,
                               .group = mesh ? mesh->data.get() : group,
                               .mesh = mesh ? &*mesh : nullptr},
                              hooks());
    train(training, stream.events());
    clock_.drive(nullptr);
    link_.report();
    link_.done();
    if (link_.rank() == 0) simulation_.run.epochs = link_.epoch();
    if (stays) link_.await_finish(links.transport());
  }

 private:
  worker::TrainHooks hooks() {
    worker::TrainHooks hooks{
        .check = [this] { link_.check(); },
        .kept = link_.epoch() > 0 && worker::KeptState::is_kept(setup_.job()) ? &kept_ : nullptr,
        .begins = [this, told = false](std::uint64_t step) mutable { begin(step, std::exchange(told, true)); }};
    const double rate = simulation_.options.flops_per_second;
    if (rate > 0)
      hooks.computed = [this, rate](double flops) { clock_.sleep_until(clock_.now() + from_seconds(flops / rate)); };
    return hooks;
  }

  /// In a mesh, the worker takes its part of the model, and the groups of the mesh.
  std::optional<worker::MeshGroups> take_part(ring::ProcessGroup* group) {
    const Mesh mesh = setup_.job().mesh();
    if (!mesh.divides_model()) return std::nullopt;
    setup_.become(JobRank{link_.rank()});
    return worker::make_mesh_groups(*group, mesh, setup_.whole().sharing);
  }

  void begin(std::uint64_t step, bool told) {
    kills_.at(step);
    reached_ = step;
    kept_.reset();
    if (told) return;
    link_.resumed(step);
    if (simulation_.options.begins_within > Nanoseconds{0}) clock_.sleep_until(clock_.now() + begins_after());
  }

  /// Workers of a real job never begin at the same moment.
  Nanoseconds begins_after() const {
    const SimulatedJobOptions& options = simulation_.options;
    std::mt19937_64 draws(options.network.seed * 4096 + place_);
    return Nanoseconds{
        static_cast<std::int64_t>(draws() % static_cast<std::uint64_t>(options.begins_within.count() + 1))};
  }

  void train(worker::Training& training, Events& events) {
    SimulatedRun::Worker& mine = simulation_.run.workers[link_.rank()];
    mine = {};
    StepCounter steps(mine.steps);
    events.listen(steps, Events::Wanted::reports);
    try {
      training.run();
    } catch (const Error&) {
      clock_.drive(nullptr);
      if (auto kept = training.keep()) kept_ = std::move(kept);
      throw;
    }
    if (simulation_.options.listener != nullptr) simulation_.options.listener->predicts(place_, training.predict());
    const std::filesystem::path& model = simulation_.options.model;
    if (!model.empty()) training.save(link_.rank() == 0 ? model : std::filesystem::path());
    training.read([&](ConstElements values) {
      for_each_widened(values, [&](std::span<const float> part, Range) {
        mine.parameters.insert(mine.parameters.end(), part.begin(), part.end());
      });
    });
  }

  /// `workers`: the members of the epoch that are workers.
  SimulatedGroup make_group(net::Transport& transport, const std::vector<net::Member>& workers) {
    ring::LinkOptions options;
    options.group.check = [this] { link_.check(); };
    options.tuning = ring::Tuning::built_in();
    const JobOptions& job = setup_.job();
    if (job.algorithm != "auto") options.algorithm = ring::parse_algorithm("--algorithm", job.algorithm);
    if (simulation_.options.segment_bytes > 0) options.segment_bytes = simulation_.options.segment_bytes;
    options.clock = &simulation_.network.clock();
    std::vector<std::size_t> places(workers.size());
    for (const net::Member& worker : workers) places[worker.peer.rank] = std::stoul(worker.addresses.at("place"));
    const std::vector<std::size_t> hosts = hosts_of(places);
    if (!hosts.empty()) return make_simulated_hosts(transport, link_.rank(), hosts, options);
    auto group = ring::make_link_group(transport, link_.rank(), job.workers, options);
    if (simulation_.options.listener != nullptr)
      group =
          make_watched_group(std::move(group), std::move(places), std::move(options), *simulation_.options.listener);
    ring::InnerGroup* const messages = group.get();
    return {std::move(group), messages};
  }

  /// The hosts of workers at these places; empty if all are on different hosts, or all on one.
  std::vector<std::size_t> hosts_of(const std::vector<std::size_t>& places) const {
    const std::vector<std::size_t>& all = simulation_.options.network.hosts;
    if (all.empty()) return {};
    std::vector<std::size_t> hosts;
    for (const std::size_t place : places) hosts.push_back(all[place]);
    const std::size_t different = std::set<std::size_t>(hosts.begin(), hosts.end()).size();
    return different == 1 || different == hosts.size() ? std::vector<std::size_t>() : hosts;
  }

  Simulation& simulation_;
  SimulatedControl::Link& link_;
  const std::size_t place_;
  const SimulatedKills kills_;
  ComputingClock clock_;
  worker::TrainSetup setup_;
  MemoryLedger memory_;
  std::uint64_t reached_ = 0;  ///< the step that the worker has come to
  std::optional<worker::KeptState> kept_;
};

}  // namespace

std::unique_ptr<SimulatedRole> make_simulated_worker(Simulation& simulation, SimulatedControl::Link& control,
                                                     std::size_t place) {
  return std::make_unique<SimulatedWorker>(simulation, control, place);
}

}  // namespace psring::view
