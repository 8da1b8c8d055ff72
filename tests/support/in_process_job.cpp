#include <algorithm>
#include <atomic>
#include <deque>
#include <exception>
#include <functional>
#include <latch>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

#include <psring/common/base/parallel.h>
#include <psring/common/base/text/error.h>
#include <psring/common/proc/data_links.h>
#include <psring/common/proc/role.h>
#include <psring/optim/job_optimizer.h>
#include <psring/optim/schedule.h>
#include <psring/ring/link/group.h>
#include <psring/ring/nccl_group.h>
#include <psring/ring/shm/world.h>
#include <psring/server/job_shard.h>
#include <psring/server/server.h>
#include <psring/server/store/checkpoint.h>
#include <psring/tests/support/in_process_job.h>
#include <psring/tests/support/in_process_network.h>
#include <psring/tests/support/shm_groups.h>
#include <psring/tests/support/temporary_folder.h>
#include <psring/worker/training.h>

namespace psring::test {
namespace {

using net::Peer;
using net::Role;

constexpr std::size_t kLent = std::size_t{64} << 10;  // a server's: sums are small

/// Brings every role to its transport. All of them must join, each from its own thread.
class Network {
 public:
  /// The last `colocated` servers share the processes of the first workers.
  Network(Links kind, std::size_t workers, std::size_t servers, std::size_t followers, std::size_t colocated)
      : kind_(kind), servers_(servers), met_(std::ptrdiff_t(workers + servers + followers)) {
    members_.resize(servers + followers);
    check(colocated == 0 || kind != Links::in_process, "colocated servers take the links that processes use");
    for (std::uint32_t rank = 0; rank < colocated; ++rank) {
      const Peer worker{Role::worker, rank};
      const Peer server{Role::server, static_cast<std::uint32_t>(servers - colocated + rank)};
      processes_[worker] = processes_[server] = std::make_shared<net::LocalLink>(worker, server);
    }
  }

  /// Linked to all whom the role sends to. The arena outlives what is returned.
  std::shared_ptr<net::Transport> join(Peer self, ByteLedger& ledger, Arena& arena) {
    if (kind_ == Links::in_process) {
      std::shared_ptr<net::Transport> endpoint = local_.endpoint(self, ledger);
      met_.arrive_and_wait();
      return endpoint;
    }
    const auto links = std::make_shared<net::DataLinks>(
        key_,
        net::DataLinks::Options{
            .self = {self, 0},
            .way = kind_ == Links::shm ? net::Way::shm : net::Way::tcp,
            .encrypt = kind_ == Links::tcp_encrypted,
            .host_id = "here",
            .link = kind_ == Links::shaped ? std::optional(net::parse_link("10gbit")) : std::nullopt},
        ledger);
    if (const auto process = processes_.find(self); process != processes_.end()) links->share_process(process->second);
    if (self.role == Role::server)
      members_[self.rank] = {.peer = self, .host_id = "here", .addresses = links->listen()};
    met_.arrive_and_wait();
    std::vector<net::Member> others = members_;
    others.resize(servers_);
    if (self.role == Role::server && self.rank < servers_)
      others.resize(self.rank == 0 ? 0 : 1);  // server 0, which collects verdicts
    else if (self.role == Role::server)
      others = {others[self.rank - servers_]};  // whom it follows
    if (!others.empty()) links->connect(others, arena, SystemClock().now() + std::chrono::seconds(60));
    return {links, &links->transport()};
  }

 private:
  const Links kind_;
  const std::size_t servers_;
  net::InProcessNetwork local_{1};
  const net::JobKey key_ = net::JobKey::generate();
  std::map<Peer, std::shared_ptr<net::LocalLink>> processes_;  ///< of colocated roles
  std::vector<net::Member> members_;  ///< each written by its own server, read once all have met
  std::latch met_;
};

/// Says when the job is over, or has failed, and wakes the servers then.
class Ending {
 public:
  explicit Ending(std::size_t workers) : left_(workers) {}

  void worker_done() {
    if (left_.fetch_sub(1) == 1) wake();
  }
  void failed(std::exception_ptr error) {
    {
      const std::scoped_lock lock(mutex_);
      if (!error_) error_ = std::move(error);
    }
    failed_ = true;
    wake();
  }
  bool over() const { return failed_ || left_ == 0; }
  void check() const {
    if (failed_) fail(ErrorKind::peer_lost, "another role of the job failed");
  }
  void rethrow() {
    if (error_) std::rethrow_exception(error_);
  }

  void watch(net::Transport& transport) {
    const std::scoped_lock lock(mutex_);
    watching_.push_back(&transport);
  }
  void unwatch(net::Transport& transport) {
    const std::scoped_lock lock(mutex_);
    std::erase(watching_, &transport);
  }

 private:
  void wake() {
    const std::scoped_lock lock(mutex_);
    for (net::Transport* transport : watching_) transport->wake();
  }

  std::atomic<std::size_t> left_;
  std::atomic<bool> failed_{false};
  std::mutex mutex_;
  std::exception_ptr error_;
  std::vector<net::Transport*> watching_;
};

class Recorder final : public ReportListener {
 public:
  explicit Recorder(WorkerRun& run) : run_(run) {}
  void on_step(const StepReport& report) override { run_.steps.push_back(report); }
  void on_evaluation(const Evaluation& evaluation) override { run_.evaluations.push_back(evaluation); }

 private:
  WorkerRun& run_;
};

std::uint64_t payload(const ByteLedger& ledger, ByteLedger::Direction direction) {
  std::uint64_t sum = 0;
  for (const char* operation : {"push", "pull", "push_pull", "values", "all_reduce", "reduce_scatter", "all_gather",
                                "message", "rows_pull", "rows", "rows_push"})
    sum += ledger.total(direction, operation).payload;
  return sum;
}

/// `firsts`: the first worker of each host.
std::vector<net::Member> members_on(const std::vector<std::size_t>& firsts, std::size_t workers) {
  std::vector<net::Member> members;
  for (std::size_t rank = 0; rank < workers; ++rank) {
    const auto host = std::upper_bound(firsts.begin(), firsts.end(), rank) - firsts.begin();
    members.push_back({.peer = {Role::worker, static_cast<std::uint32_t>(rank)},
                       .host_id = "host " + std::to_string(host),
                       .addresses = {}});
  }
  return members;
}

struct Rules {
  optim::OptimizerRegistry optimizers;
  worker::Registries workers;
  Registry<server::Aggregator> aggregators;

  explicit Rules(const std::function<void(worker::Registries&)>& add) {
    optim::register_builtin_optimizers(optimizers);
    worker::register_builtins(workers);
    server::register_builtin_aggregators(aggregators);
    if (add) add(workers);
  }
};

class Job {
 public:
  Job(const JobOptions& job, const std::function<void(worker::Registries&)>& add, std::vector<std::size_t> hosts,
      bool followers)
      : rules_(add),
        setup_(job, rules_.workers, rules_.optimizers),
        ending_(job.workers),
        shard_groups_(shard_groups(job, members_on(hosts, job.workers))),
        followers_(followers),
        hosts_(job.local_reduce ? std::move(hosts) : std::vector<std::size_t>()) {
    if (!shard_groups_.empty())
      setup_.cut_among(
          static_cast<std::size_t>(std::count(shard_groups_.begin(), shard_groups_.end(), shard_groups_[0])));
  }

  JobRun run(Links links) {
    const JobOptions& job = setup_.job();
    const std::size_t servers = setup_.strategy().has_servers() ? job.servers : 0;
    const std::size_t followers = followers_ ? servers : 0;
    Network network(links, job.workers, servers, followers, job.colocated_servers());
    JobRun result{.workers = std::vector<WorkerRun>(job.workers),
                  .steps = setup_.steps(),
                  .parameters = setup_.layout().elements(),
                  .test_samples = setup_.data().test->size()};
    result.server_peaks.resize(servers + followers);
    result.server_states.resize(2 * followers);
    for (std::size_t rank = 0; rank < job.workers; ++rank) arenas_.emplace_back(worker::lent_bytes(setup_.layout()));
    std::vector<ByteLedger> ledgers(servers + followers);
    make_groups(links);
    make_hosts();
    {
      std::vector<std::jthread> threads;
      for (std::uint32_t rank = 0; rank < ledgers.size(); ++rank)
        threads.emplace_back([&, rank] { guard([&] { serve(rank, network, ledgers[rank], result); }); });
      for (std::uint32_t rank = 0; rank < job.workers; ++rank)
        threads.emplace_back([&, rank] { guard([&] { work(rank, network, result); }); });
    }
    ending_.rethrow();
    for (const ByteLedger& ledger : ledgers) {
      result.servers_received += payload(ledger, ByteLedger::Direction::received);
      result.servers_sent += payload(ledger, ByteLedger::Direction::sent);
      result.servers_replicated += ledger.total(ByteLedger::Direction::sent, "replicate").payload;
    }
    return result;
  }

 private:
  void guard(const std::function<void()>& body) {
    try {
      body();
    } catch (...) {
      ending_.failed(std::current_exception());
    }
  }

  void make_groups(Links links) {
    if (!setup_.strategy().ring && !setup_.strategy().scatters) return;
    const std::size_t workers = setup_.job().workers;
    worker_bytes_ = std::vector<ByteLedger>(workers);
    const ring::GroupOptions options{.check = [this] { ending_.check(); }};
    if (links == Links::shm) {
      groups_ = ring::make_shm_groups(workers, worker::lent_bytes(setup_.layout()) + ring::kShmArenaBytes, options,
                                      worker_bytes_);
      return;
    }
    for (std::uint32_t rank = 0; rank < workers; ++rank)
      endpoints_.push_back(ring_network_.endpoint({Role::worker, rank}, worker_bytes_[rank]));
    for (std::size_t rank = 0; rank < workers; ++rank)
      groups_.push_back(ring::make_link_group(
          *endpoints_[rank], rank, workers,
          {.group = options,
           .tuning = ring::Tuning::built_in(),
           .algorithm = setup_.job().algorithm == "auto"
                            ? std::nullopt
                            : std::optional(ring::parse_algorithm("--algorithm", setup_.job().algorithm)),
           .segment_bytes = 4096,
           .background = setup_.job().overlap}));
  }

  void make_hosts() {
    if (hosts_.empty()) return;
    const std::size_t workers = setup_.job().workers;
    const std::size_t bytes = worker::lent_bytes(setup_.layout()) + ring::kShmArenaBytes;
    worker_bytes_ = std::vector<ByteLedger>(workers);
    const ring::GroupOptions options{.check = [this] { ending_.check(); }};
    for (std::size_t host = 0; host < hosts_.size(); ++host) {
      const std::size_t begin = hosts_[host];
      const std::size_t end = host + 1 < hosts_.size() ? hosts_[host + 1] : workers;
      auto groups =
          ring::make_shm_groups(end - begin, bytes, options, std::span(worker_bytes_).subspan(begin, end - begin));
      std::move(groups.begin(), groups.end(), std::back_inserter(host_groups_));
    }
  }

  void serve(std::uint32_t rank, Network& network, ByteLedger& bytes, JobRun& result) {
    const JobOptions& job = setup_.job();
    const std::unique_ptr<Device> device = job.server_device == "cuda" ? make_cuda_device(0) : nullptr;
    const server::JobShard rules(job, setup_.steps(), rules_.aggregators, rules_.optimizers);
    server::ShardOptions options = rules.options(rank, hosts_.size());
    options.device = device.get();
    const auto servers = static_cast<std::uint32_t>(job.servers);
    const SystemClock clock;
    MemoryLedger memory;
    Parallel parallel(job.server_threads);
    server::Shard shard(options, parallel, memory);
    Arena arena(kLent);
    const auto transport = network.join({Role::server, rank}, bytes, arena);
    ending_.watch(*transport);
    const auto unwatch = [this](net::Transport* watched) { ending_.unwatch(*watched); };
    const std::unique_ptr<net::Transport, decltype(unwatch)> watched(transport.get(), unwatch);
    // Its error is known before its links close: what they tell the others is not the first cause.
    const auto over = [this] { return ending_.over(); };
    guard([&] {
      if (rank >= servers) {
        server::Follower follower(shard, {Role::server, rank - servers});
        server::follow(follower, *transport, clock, over);
        check(follower.whole(), "follower {} is not whole", rank);
        return;
      }
      server::Replication replication(shard, {Role::server, rank + servers});
      server::serve(
          shard, *transport, clock, over, nullptr,
          [&](std::uint64_t step) { server::write_part(job, rank, shard, step); }, followers_ ? &replication : nullptr);
    });
    if (followers_)
      for (const optim::StatePart& part : shard.state()) {
        const auto values = part.values.bytes();
        result.server_states[rank].append(reinterpret_cast<const char*>(values.data()), values.size());
      }
    for (const Category category :
         {Category::parameters, Category::gradients, Category::optimizer, Category::communication, Category::index})
      if (category != Category::index || memory.peak_bytes(category) > 0)  // the index is of tables alone
        result.server_peaks[rank][category] = memory.peak_bytes(category);
  }

  void work(std::uint32_t rank, Network& network, JobRun& result) {
    WorkerRun& mine = result.workers[rank];
    const SystemClock clock;
    MemoryLedger memory;
    ByteLedger bytes;
    Events events(clock);
    ring::ProcessGroup* host = host_groups_.empty() ? nullptr : host_groups_[rank].get();
    ring::ProcessGroup* const own_group = groups_.empty() ? nullptr : groups_[rank].get();
    const bool shares = setup_.strategy().row_servers && own_group != nullptr && own_group->arena() != nullptr;
    Arena& arena = host != nullptr ? *host->arena() : shares ? *own_group->arena() : arenas_[rank];
    const bool linked = setup_.strategy().has_servers();
    const auto transport = linked ? network.join({Role::worker, rank}, bytes, arena) : nullptr;
    const std::unique_ptr<Device> device = setup_.job().device == "cuda" ? make_cuda_device(0) : nullptr;
    const bool over_nccl = device != nullptr && setup_.strategy().ring;
    if (over_nccl)
      groups_[rank] = ring::make_nccl_group(
          std::move(groups_[rank]), *device,
          {.group = {.check = [this] { ending_.check(); }, .ledger = &worker_bytes_[rank]}, .register_from = 1});
    ring::ProcessGroup* group = groups_.empty() ? nullptr : groups_[rank].get();
    worker::Training training(
        setup_,
        {.rank = {rank}, .pushers = hosts_, .shard_groups = shard_groups_, .replicas = followers_ ? std::size_t{1} : 0},
        {.memory = memory,
         .clock = clock,
         .events = events,
         .arena = linked             ? &arena
                  : group != nullptr ? group->arena()
                                     : nullptr,
         .device = device.get(),
         .transport = transport.get(),
         .group = group,
         .host = host},
        {.check = [this] { ending_.check(); }});
    Recorder recorder(mine);
    events.listen(recorder, Events::Wanted::reports);
    training.run();
    const TemporaryFolder folder;
    training.save(folder.file("model.safetensors"));
    mine.model = read_file(folder.file("model.safetensors"));
    std::vector<const ByteLedger*> ledgers{&bytes};
    if (!worker_bytes_.empty()) ledgers.push_back(&worker_bytes_[rank]);
    for (const ByteLedger* counted : ledgers) {
      mine.sent += payload(*counted, ByteLedger::Direction::sent);
      mine.received += payload(*counted, ByteLedger::Direction::received);
    }
    mine.predicted = training.predict();
    for (const auto& [category, predicted] : mine.predicted.worker_memory)
      mine.peaks[category] = memory.peak_bytes(category);
    mine.activations = memory.peak_bytes(Category::activations);
    if (rank == 0) result.predicted = mine.predicted;
    if (over_nccl) {
      group->barrier().wait();
      groups_[rank].reset();  // before its device
    }
    ending_.worker_done();
  }

  const Rules rules_;
  worker::TrainSetup setup_;
  Ending ending_;
  const std::vector<std::size_t> shard_groups_;
  std::deque<Arena> arenas_;  ///< of the workers; outlive them, as a server of the same process may read them later
  std::vector<ByteLedger> worker_bytes_;  ///< of workers that reach each other
  net::InProcessNetwork ring_network_{2};
  std::vector<std::unique_ptr<net::Transport>> endpoints_;
  std::vector<std::unique_ptr<ring::ProcessGroup>> groups_;
  const bool followers_;
  const std::vector<std::size_t> hosts_;  ///< their first workers, with --local-reduce
  std::vector<std::unique_ptr<ring::ProcessGroup>> host_groups_;
};

}  // namespace

JobOptions small_job(const std::string& model, std::size_t steps) {
  JobOptions job;
  job.model = model;
  job.data = "synthetic:samples=70";
  job.global_batch = 12;
  job.steps = steps;
  job.seed = 5;
  job.optimizer = "adamw";
  job.lr = 0.01;
  return job;
}

JobRun run_job(const JobOptions& job, Links links, const std::function<void(worker::Registries&)>& add,
               std::vector<std::size_t> first_of_hosts, bool followers) {
  return Job(job, add, std::move(first_of_hosts), followers).run(links);
}

}  // namespace psring::test
