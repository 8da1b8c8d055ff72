#include <memory>
#include <optional>

#include <psring/common/base/parallel.h>
#include <psring/common/base/system/extension.h>
#include <psring/common/base/system/run_delay.h>
#include <psring/common/base/system/standard_files.h>
#include <psring/common/base/text/json.h>
#include <psring/common/device/arena.h>
#include <psring/common/device/device.h>
#include <psring/common/device/mapping.h>
#include <psring/common/net/part_transport.h>
#include <psring/common/net/reporting.h>
#include <psring/common/proc/fault.h>
#include <psring/common/proc/logs/event_log.h>
#include <psring/common/proc/logs/live_log.h>
#include <psring/common/proc/mesh_servers.h>
#include <psring/optim/rows/row_figures.h>
#include <psring/server/job_shard.h>
#include <psring/server/role.h>
#include <psring/server/server.h>
#include <psring/server/store/checkpoint.h>

namespace psring::server {
namespace {

/// Bytes of the arena for a server's link to server 0. Sums are small, and go through the link's own memory.
constexpr std::size_t kArenaBytes = std::size_t{64} << 10;

/// A list with one entry for each worker.
Json json_of(const std::vector<StalenessRecord>& records) {
  Json list = Json::array();
  for (const StalenessRecord& record : records)
    list.push_back({{"updates", record.updates},
                    {"dropped", record.dropped},
                    {"sum", record.sum},
                    {"most", record.most},
                    {"most_lag", record.most_lag},
                    {"bins", record.bins}});
  return list;
}

/// A server or follower, over all epochs of the membership.
class ServerLife {
 public:
  ServerLife(Membership& member, const Registry<Aggregator>& aggregators, const optim::OptimizerRegistry& optimizers)
      : member_(member),
        job_(member.job()),
        rules_(job_, job_.steps.value_or(1), aggregators, optimizers),
        parallel_(job_.server_threads),
        events_(member.clock()),
        fault_(job_.fault, member.self()) {
    if (job_.records_events()) events_.record(event_log_.emplace(member).recorder(), job_.trace);
    if (!job_.live.empty()) live_.emplace(member).follow(events_);
    if (job_.server_device == "cpu") return;
    device_ = make_cuda_device(member.rank() % cuda_devices());
    device_->use_graphs(job_.cuda_graphs);
    out::print("server {}: updates on {}\n", member.rank(), device_->name());
  }

  /// Serves until a peer is lost (throws) or the job ends.
  void serve_epoch() {
    // Shared with the membership, whose links close last: they may still send answers out of the shard's memory.
    const auto arena = std::make_shared<Arena>(kArenaBytes);
    member_.keep(arena);
    const bool keeps_state = job_.recovery == "servers" || job_.recovery == "both";  // else all processes begin anew
    const bool has_state = keeps_state && whole_ && shard_->opened();
    const std::vector<net::Member> members =
        member_.meet(member_.links().listen(), has_state ? shard_->version() : 0, has_state);
    if (event_log_) event_log_->enter_epoch();
    const bool follows = member_.rank() >= job_.servers;
    if (!shard_ || follows)
      shard_ = make_shard(of_role(members, net::Role::worker));
    else
      shard_->begin_epoch(static_cast<std::uint32_t>(job_.data_workers()));
    member_.keep(shard_);
    // A follower connects to its server; the other servers to server 0, which collects verdicts.
    const std::size_t other = follows ? member_.rank() - job_.servers : 0;
    if (member_.rank() > 0)
      member_.links().connect({of_role(members, net::Role::server).at(other)}, *arena, member_.deadline());
    const auto reporting = net::make_reporting(member_.links().transport(), events_);
    const auto transport =
        net::make_part_transport(*reporting, net::Role::worker, part_of_server(job_, member_.rank()));
    member_.link().on_change([&links = member_.links().transport()] { links.wake(); });
    follows ? follow(*transport, {net::Role::server, static_cast<std::uint32_t>(other)}) : serve(*transport);
    member_.link().on_change({});
    report();
  }

 private:
  std::shared_ptr<Shard> make_shard(const std::vector<net::Member>& workers) {
    ShardOptions options =
        rules_.options(member_.rank(), job_.local_reduce ? first_of_each_host(workers).size() : job_.data_workers());
    options.memory_bytes = host_memory_bytes();
    options.device = device_.get();
    // Shared with the membership. The deleter holds the device, which outlives the shard's memory.
    return {new Shard(options, parallel_, member_.memory()), [device = device_](Shard* shard) { delete shard; }};
  }

  bool finished() {
    if (live_) live_->set_updates(shard_->version());
    if (live_ && !shard_->tables().empty()) live_->set_rows(shard_->tables().rows());
    fault_.at(shard_->version());
    if (!began_ && shard_->opened()) began_ = {.at = member_.clock().now(), .processor_s = processor_seconds()};
    member_.link().check();
    return member_.link().finished();
  }

  void serve(net::Transport& transport) {
    whole_ = true;
    std::optional<Replication> replication;
    if (job_.replicas > 0)
      replication.emplace(*shard_,
                          net::Peer{net::Role::server, static_cast<std::uint32_t>(member_.rank() + job_.servers)});
    call_extension([this] { return fmt::format("--optimizer {} or --aggregate {}", job_.optimizer, job_.aggregate); },
                   [&] {
                     busy_ += server::serve(
                         *shard_, transport, member_.clock(), [this] { return finished(); }, &events_,
                         [&](std::uint64_t step) { write_part(job_, member_.rank(), *shard_, step); },
                         replication ? &*replication : nullptr);
                   });
  }

  void follow(net::Transport& transport, net::Peer primary) {
    Follower follower(*shard_, primary);
    whole_ = false;
    try {
      server::follow(follower, transport, member_.clock(), [this] { return finished(); });
    } catch (const Error&) {
      whole_ = follower.whole();
      throw;
    }
  }

  void report() {
    if (event_log_) event_log_->finish();
    if (live_) live_->finish();
    const double passed = began_ ? seconds(member_.clock().now() - began_->at) : 0;
    out::print("server {}: {}, version {}\n", member_.rank(), shard_->describe(), shard_->version());
    Json json{{"elements", shard_->elements()},
              {"version", shard_->version()},
              {"text", shard_->describe()},
              {"busy_s", seconds(busy_)},
              {"staleness", json_of(shard_->staleness())}};
    for (const optim::TablePart& part : shard_->tables().state())
      json["tables"].push_back(optim::row_figures(*part.table, *part.rows));
    if (passed > 0) json["processors_used"] = (processor_seconds() - began_->processor_s) / passed;
    member_.link().report(member_.report_json(json.dump()));
  }

  /// When the shard had its parameters, and the process's processor time until then.
  struct Began {
    Moment at;
    double processor_s = 0;
  };

  Membership& member_;
  const JobOptions& job_;
  const JobShard rules_;
  Parallel parallel_;
  std::optional<EventLog> event_log_;  ///< empty if no events are recorded
  std::optional<LiveLog> live_;        ///< empty without --live
  Events events_;
  const FaultTrigger fault_;        ///< keeps its target, even if this process gets another rank
  std::shared_ptr<Device> device_;  ///< shared with the shard's deleter; null: the host applies updates
  std::shared_ptr<Shard> shard_;    ///< shared with the membership
  bool whole_ = false;              ///< the shard has the whole state of its rank
  Nanoseconds busy_{0};             ///< time spent on frames and updates
  std::optional<Began> began_;
};

MakeLife life_of(const Registry<Aggregator>& aggregators, const optim::OptimizerRegistry& optimizers) {
  return [&](Membership& member) -> Life {
    // Shared because a std::function has to be copyable.
    return [life = std::make_shared<ServerLife>(member, aggregators, optimizers)] { life->serve_epoch(); };
  };
}

}  // namespace

net::control::Interruption run_server(const RoleOptions& options, const Registry<Aggregator>& aggregators,
                                      const optim::OptimizerRegistry& optimizers) {
  return run_role(options, net::Role::server, life_of(aggregators, optimizers));
}

void run_server(Membership& member, const Registry<Aggregator>& aggregators,
                const optim::OptimizerRegistry& optimizers) {
  run_role(member, life_of(aggregators, optimizers));
}

}  // namespace psring::server
