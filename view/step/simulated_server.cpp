#include <algorithm>
#include <optional>
#include <utility>

#include <psring/common/base/parallel.h>
#include <psring/common/base/text/error.h>
#include <psring/common/proc/role.h>
#include <psring/server/job_shard.h>
#include <psring/server/server.h>
#include <psring/view/step/simulation.h>

namespace psring::view {
namespace {

using net::Peer;
using net::Role;

/// A server or follower; like the ServerLife of server/role.cpp.
class SimulatedServer final : public SimulatedRole {
 public:
  SimulatedServer(Simulation& simulation, SimulatedControl::Link& link, std::size_t place)
      : simulation_(simulation),
        job_(simulation.setup.job()),
        link_(link),
        place_(place),
        kills_(simulation, place),
        rules_(job_, simulation.setup.steps(), simulation.names.aggregators, simulation.names.optimizers),
        wrapping_(simulation.options.server_links
                      ? simulation.options.server_links(job_.workers * simulation.setup.layout().pushes)
                      : nullptr) {}

  void live_epoch() override {
    events_ = nullptr;
    if (job_.recovery != "servers" && job_.recovery != "both") shard_.reset();
    const bool has_state = whole_ && shard_ && shard_->opened();
    const std::uint32_t before = link_.rank();
    const std::vector<net::Member> members = link_.meet(has_state ? shard_->version() : 0, has_state);
    if (link_.rank() != before && link_.rank() < job_.servers) ++simulation_.run.promoted;
    const bool follows = link_.rank() >= job_.servers;
    workers_ = static_cast<std::uint32_t>(of_role(members, Role::worker).size());
    if (!shard_ || follows) {
      server::ShardOptions options = rules_.options(link_.rank(), 0);
      options.workers = workers_;
      if (simulation_.options.server_bytes_per_second > 0)
        options.working = [this](const server::ShardWork& work) { take_time(work); };
      shard_.emplace(options, parallel_, memory_);
    } else {
      shard_->begin_epoch(workers_);
    }
    {
      ProcessLinks links(simulation_, place_, link_, members, job_.goes_on());
      const auto wrapped = wrapping_ ? wrapping_->wrap(links.transport(), link_.self()) : nullptr;
      net::Transport& transport = wrapped ? *wrapped : links.transport();
      follows ? follow(transport) : serve(transport);
    }
    record();
    link_.report();
  }

 private:
  bool finished() {
    kills_.at(shard_->version());
    link_.check();
    return link_.finished();
  }

  void serve(net::Transport& transport) {
    whole_ = true;
    std::optional<server::Replication> replication;
    if (job_.replicas > 0)
      replication.emplace(*shard_, Peer{Role::server, link_.rank() + static_cast<std::uint32_t>(job_.servers)});
    ProcessEvents stream(simulation_, place_, link_.self(), memory_);
    events_ = &stream.events();
    server::serve(
        *shard_, transport, simulation_.network.clock(), [this] { return finished(); }, &stream.events(), nullptr,
        replication ? &*replication : nullptr);
  }

  void follow(net::Transport& transport) {
    server::Follower follower(*shard_, {Role::server, link_.rank() - static_cast<std::uint32_t>(job_.servers)});
    whole_ = false;
    const ProcessEvents stream(simulation_, place_, link_.self(), memory_);
    try {
      server::follow(follower, transport, simulation_.network.clock(), [this] { return finished(); });
    } catch (const Error&) {
      whole_ = follower.whole();
      throw;
    }
  }

  /// A follower has no activities, and takes no time.
  void take_time(const server::ShardWork& work) {
    if (events_ == nullptr) return;
    const Events::Span span(*events_, {.name = work.name, .unit = work.unit, .bytes = work.bytes}, work.step,
                            work.source);
    const Clock& clock = simulation_.network.clock();
    const double rate = simulation_.options.server_bytes_per_second;
    clock.sleep_until(clock.now() + from_seconds(static_cast<double>(work.bytes) / rate));
  }

  void record() {
    SimulatedRun::Server mine{.lived = true, .version = shard_->version(), .most_lag = 0, .state = {}, .rows = {}};
    for (const server::StalenessRecord& of : shard_->staleness()) mine.most_lag = std::max(mine.most_lag, of.most_lag);
    if (job_.replicas > 0) {
      shard_->begin_epoch(workers_);
      std::vector<net::Outgoing> frames;
      shard_->snapshot({}, frames);
      for (const net::Outgoing& frame : frames)
        mine.state.insert(mine.state.end(), frame.payload.begin(), frame.payload.end());
    }
    for (const optim::TablePart& table : shard_->tables().state())
      for (const std::uint32_t row : table.rows->in_order()) {
        const std::byte* const record = table.rows->records().record(row);
        mine.rows.insert(mine.rows.end(), record, record + table.rows->record_bytes());
      }
    simulation_.run.servers[link_.rank()] = std::move(mine);
  }

  Simulation& simulation_;
  const JobOptions& job_;
  SimulatedControl::Link& link_;
  const std::size_t place_;
  const SimulatedKills kills_;
  const server::JobShard rules_;
  const std::unique_ptr<ServerLinks> wrapping_;
  MemoryLedger memory_;
  Parallel parallel_{1};
  std::optional<server::Shard> shard_;
  std::uint32_t workers_ = 0;  ///< number of workers in the epoch
  bool whole_ = false;         ///< the shard has the whole state of its rank
  Events* events_ = nullptr;   ///< of the epoch; null: the server does not serve
};

}  // namespace

std::unique_ptr<SimulatedRole> make_simulated_server(Simulation& simulation, SimulatedControl::Link& control,
                                                     std::size_t place) {
  return std::make_unique<SimulatedServer>(simulation, control, place);
}

}  // namespace psring::view
