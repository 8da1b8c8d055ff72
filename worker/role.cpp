#include <algorithm>
#include <cstdio>
#include <exception>
#include <memory>
#include <optional>
#include <thread>
#include <utility>

#include <psring/common/base/mesh_part.h>
#include <psring/common/base/system/file.h>
#include <psring/common/base/system/standard_files.h>
#include <psring/common/base/text/error.h>
#include <psring/common/net/address.h>
#include <psring/common/net/part_transport.h>
#include <psring/common/net/reporting.h>
#include <psring/common/proc/fault.h>
#include <psring/common/proc/logs/event_log.h>
#include <psring/common/proc/logs/live_log.h>
#include <psring/optim/checkpoint/checkpoint.h>
#include <psring/ring/nccl_group.h>
#include <psring/ring/ring_links.h>
#include <psring/ring/session.h>
#include <psring/ring/shm/world.h>
#include <psring/worker/data/fingerprint.h>
#include <psring/worker/metrics.h>
#include <psring/worker/model_part.h>
#include <psring/worker/role.h>
#include <psring/worker/servers/server_weights.h>
#include <psring/worker/training.h>

namespace psring::worker {
namespace {

/// A server in this process: a role of its own, with its own place in the job, in a thread of its own.
class OwnServer {
 public:
  /// Joins the job as the server of this rank. REQUIRES: the worker has joined, and its data links are not in use.
  void start(Membership& worker, std::uint32_t rank, RoleOptions options, const std::function<void(Membership&)>& run) {
    options.rank = rank;
    options.host =
        std::make_shared<net::LocalLink>(worker.self(), net::Peer{net::Role::server, rank}, worker.link_options().card);
    worker.links().share_process(options.host);
    member_.emplace(options, net::Role::server);
    thread_ = std::jthread([this, run] {
      try {
        run(*member_);
      } catch (...) {
        error_ = std::current_exception();
      }
    });
  }

  /// Returns once the server has ended; throws the server's error.
  void join() {
    if (thread_.joinable()) thread_.join();
    if (error_) std::rethrow_exception(error_);
  }

 private:
  std::optional<Membership> member_;
  std::exception_ptr error_;
  std::jthread thread_;  ///< ends with the job, as all servers do
};

/// Everything that lives as long as the links of an epoch: memory that peers read and write, groups, and the events.
struct EpochMemory {
  explicit EpochMemory(std::shared_ptr<Arena>& of_pushes) : arena(of_pushes) {}

  std::optional<EventLog> event_log;  ///< empty if no events are recorded
  std::optional<LiveLog> live;        ///< empty without --live
  std::optional<Events> events;       ///< outlives flights, links and groups
  std::unique_ptr<net::Transport> reporting;
  std::unique_ptr<net::Transport> transport;  ///< to the servers of this worker's part of the model
  std::unique_ptr<Device> device;
  std::shared_ptr<Arena>& arena;  ///< shared with the group of the host
  std::optional<ring::RingLinks> links;
  std::unique_ptr<ring::ProcessGroup> host;  ///< --local-reduce
  std::unique_ptr<ring::ProcessGroup> group;
  std::optional<MeshGroups> mesh;  ///< parts of `group`; empty if every worker has the whole model
  std::optional<Training> training;
};

/// The memory that this worker's peers read and write.
std::size_t shared_bytes(const JobOptions& job, const TrainSetup& setup) {
  return lent_bytes(setup.layout()) + (job.mesh().divides_model() ? pipeline_bytes(setup) + tensor_bytes(setup) : 0);
}

/// The servers that own this worker's part of the model, without their followers.
std::vector<net::Member> servers_of(const Membership& member, const std::vector<net::Member>& servers) {
  const JobOptions& job = member.job();
  check(servers.size() >= job.servers, "a job without all of its servers");
  const MeshPart part = part_of(job.mesh(), member.rank());
  std::vector<net::Member> own;
  for (std::size_t rank = 0; rank < job.servers; ++rank)
    if (part.has(rank)) own.push_back(servers[rank]);
  return own;
}

net::Transport* link_to_servers(Membership& member, const TrainSetup& setup, EpochMemory& memory,
                                const std::vector<net::Member>& servers) {
  const JobOptions& job = member.job();
  const bool also_workers = job.local_reduce || job.mesh().divides_model() || setup.strategy().row_servers;
  memory.arena = std::make_shared<Arena>(shared_bytes(job, setup) + (also_workers ? ring::kShmArenaBytes : 0));
  member.links().connect(servers, *memory.arena, member.deadline());
  net::Transport& links = member.links().transport();
  memory.reporting = net::make_reporting(links, *memory.events);
  memory.transport = net::make_part_transport(*memory.reporting, net::Role::server, part_of(job.mesh(), member.rank()));
  net::Transport* transport = memory.transport.get();
  member.link().on_change([transport] { transport->wake(); });
  if (member.rank() == 0 && setup.strategy().servers)
    out::print("{} of {} elements, padding counted\n", describe_shares(job, setup.layout()), setup.layout().elements());
  for (const net::Member& server : servers)
    out::print("worker {}: {} through {}\n", member.rank(), to_string(server), links.describe(server.peer));
  return transport;
}

void link_to_workers(Membership& member, const TrainSetup& setup, EpochMemory& memory,
                     const std::vector<net::Member>& workers) {
  const bool on_host = memory.device == nullptr || !setup.strategy().ring;  // samples that are scattered lie there
  const Mesh mesh = member.job().mesh();
  const std::size_t lent = on_host ? shared_bytes(member.job(), setup) : 0;
  // Servers of a mesh's parts, or of rows, and workers read one arena.
  const bool with_servers = memory.arena && (mesh.divides_model() || setup.strategy().row_servers);
  auto arena = with_servers ? memory.arena : std::make_shared<Arena>(lent + ring::kShmArenaBytes);
  memory.group = ring::make_job_group(member, *memory.links, workers, std::move(arena), on_host && member.job().overlap,
                                      &*memory.events);
  if (!on_host)
    memory.group = ring::make_nccl_group(std::move(memory.group), *memory.device,
                                         {.group = ring::group_options(member),
                                          .share_gpu = member.job().share_gpu,
                                          .interface = net::interface_of(member.link_options().bind),
                                          .patience = from_seconds(member.job().join_timeout)});
  if (memory.events->detailed()) memory.group->report_to(*memory.events);
  if (mesh.divides_model()) memory.mesh.emplace(make_mesh_groups(*memory.group, mesh, setup.whole().sharing));
  if (member.rank() == 0 && setup.strategy().ring)
    out::print("{}\n", memory.group->describe(ring::Collective::all_reduce, setup.layout().elements(), {}));
  const std::size_t owners = setup.layout().owners;
  if (member.rank() == 0 && setup.strategy().stage > 0 && owners < mesh.data)
    out::print("{} shard groups: each cuts units among {} workers\n", workers.size() / owners, owners);
}

/// Workers of a host have its GPUs in the order of their ranks.
std::unique_ptr<Device> own_gpu(Membership& member, const std::vector<net::Member>& workers) {
  const std::string& host = member.link_options().host_id;
  const bool one_host = !member.job().link.empty();  // that counts as several
  const auto before = static_cast<std::size_t>(
      std::count_if(workers.begin(), workers.begin() + member.rank(),
                    [&](const net::Member& other) { return one_host || other.host_id == host; }));
  const std::size_t gpus = cuda_devices();
  if (before >= gpus && !member.job().share_gpu)
    fail(ErrorKind::usage,
         "--device cuda: no GPU is left for worker {}, the {}. of a host with {}; --share-gpu lets workers share one",
         member.rank(), before + 1, gpus);
  std::unique_ptr<Device> device = make_cuda_device(before % gpus);
  device->book(member.memory());
  out::print("worker {}: computes on {}\n", member.rank(), device->name());
  return device;
}

std::optional<GpuMemory> gpu_memory(Membership& member, const Device* device) {
  if (device == nullptr) return std::nullopt;
  GpuMemory gpu{.name = device->name()};
  for (const Category category :
       {Category::parameters, Category::gradients, Category::optimizer, Category::activations, Category::communication})
    gpu.booked += member.memory().peak_bytes(category);
  if (!member.job().share_gpu) gpu.driver = device->memory().held_bytes;
  out::print("worker {}: GPU memory: {} MiB booked at most", member.rank(), gpu.booked >> 20);
  if (gpu.driver) out::print(", {} MiB as the driver says, without CUDA's own", *gpu.driver >> 20);
  out::print("\n");
  return gpu;
}

/// The worker that tells how far the run is: the first that has the losses.
std::size_t teller(const JobOptions& job) { return job.tensor * (job.pipeline - 1); }

TrainSetup part_of(const Membership& member, const Registries& registries, const optim::OptimizerRegistry& optimizers) {
  TrainSetup setup(member.job(), registries, optimizers);
  setup.become(JobRank{member.rank()});
  return setup;
}

/// Describes the job's files at this host, so that hosts with different files are noticed.
net::Addresses files_of(const TrainSetup& setup) {
  const JobOptions& job = setup.job();
  const DataSplit& data = setup.data();
  net::Addresses files{{"--data " + job.data, sample_of(*data.train)}};
  if (data.test != nullptr) files.begin()->second += "; test: " + sample_of(*data.test);
  if (!job.init.empty()) files["--init " + job.init] = sample_of(InputFile(job.init));
  if (setup.saved())
    files["--resume " + job.resume] =
        fmt::format("run {}, step {}, manifest of {}", setup.saved()->manifest().run, setup.saved()->step(),
                    sample_of(InputFile((setup.saved()->folder() / optim::kManifest).string())));
  return files;
}

/// The state of a worker over all membership epochs.
struct WorkerLife {
  WorkerLife(Membership& member, const Registries& registries, const optim::OptimizerRegistry& optimizers)
      : setup(part_of(member, registries, optimizers)),
        metrics({.steps = setup.steps(),
                 .lr = setup.optimizer().lr,
                 .schedule = setup.optimizer().schedule,
                 .classes = setup.model().classes > 0,
                 .tokens_per_sample = setup.model().tokens ? setup.whole().input_cols : 0,
                 .threads = member.job().threads,
                 .tells_progress = member.rank() == teller(member.job())},
                member),
        fault(member.job().fault, member.self()),
        files(files_of(setup)) {}

  TrainSetup setup;
  MetricsWriter metrics;
  const FaultTrigger fault;       ///< of its place, whatever its rank becomes
  std::uint64_t reached = 0;      ///< the latest step that has begun
  std::optional<KeptState> kept;  ///< of the epoch before
  const net::Addresses files;     ///< net::control::Ready
};

/// Runs the training to the end of the job; keeps its state if the job survives a lost peer, and otherwise the metrics
/// of the completed steps.
void run_or_keep(const Membership& member, Training& training, WorkerLife& life, const std::function<void()>& run) {
  try {
    run();
  } catch (const Error& error) {
    try {
      if (auto kept = training.keep()) life.kept = std::move(kept);
      if (!member.outlives(error)) life.metrics.flush();  // lines of the last half second
    } catch (const Error&) {
      throw error;  // the first
    }
    throw;
  }
}

void train(Membership& member, WorkerLife& life, std::shared_ptr<Arena>& arena) {
  const JobOptions& job = member.job();
  TrainSetup& setup = life.setup;
  arena.reset();
  const auto memory = std::make_shared<EpochMemory>(arena);  // shared with the membership, whose links close last
  member.keep(memory);
  Events& events = memory->events.emplace(member.clock());
  events.listen(life.metrics, Events::Wanted::reports);
  if (job.records_events()) events.record(memory->event_log.emplace(member).recorder(), job.trace);
  if (!job.live.empty()) memory->live.emplace(member).follow(events);
  if (job.device == "cuda") cuda_devices();  // reports a missing GPU before other processes wait for this worker
  const bool grouped = setup.strategy().ring || setup.strategy().scatters || job.mesh().divides_model();
  if (grouped || job.local_reduce) memory->links.emplace(member.key(), member.link_options(), member.bytes());
  const std::vector<net::Member> members = member.meet(memory->links ? memory->links->listen() : net::Addresses(),
                                                       life.reached, life.kept.has_value(), life.files);
  if (memory->event_log) memory->event_log->enter_epoch();
  setup.share_among(job.workers);
  if (memory->links) memory->links->become(member.link_options().self);
  net::Transport* transport = nullptr;
  if (setup.strategy().has_servers())
    transport = link_to_servers(member, setup, *memory, servers_of(member, of_role(members, net::Role::server)));
  const std::vector<net::Member> workers = of_role(members, net::Role::worker);
  if (job.device == "cuda") {
    memory->device = own_gpu(member, workers);
    memory->device->use_graphs(job.cuda_graphs);
    if (events.detailed()) memory->device->report_to(events);
  }
  const std::vector<std::size_t> groups = shard_groups(job, workers);
  if (!groups.empty()) setup.cut_among(static_cast<std::size_t>(std::count(groups.begin(), groups.end(), groups[0])));
  if (grouped) link_to_workers(member, setup, *memory, workers);
  if (job.local_reduce) memory->host = ring::make_host_group(member, *memory->links, workers, memory->arena);
  std::fflush(stdout);
  auto resume = [&member, told = false](std::uint64_t step) mutable {
    if (!std::exchange(told, true)) member.link().resumed(step);
  };
  const World world{.memory = member.memory(),
                    .clock = member.clock(),
                    .events = events,
                    .arena = memory->arena   ? memory->arena.get()
                             : memory->group ? memory->group->arena()
                                             : nullptr,
                    .device = memory->device.get(),
                    .transport = transport,
                    .group = memory->mesh ? memory->mesh->data.get() : memory->group.get(),
                    .host = memory->host.get(),
                    .mesh = memory->mesh ? &*memory->mesh : nullptr};
  TrainHooks hooks{.check = [&] { member.link().check(); },
                   .kept = member.epoch() > 0 && KeptState::is_kept(job) ? &life.kept : nullptr,
                   .begins =
                       [&](std::uint64_t step) {
                         life.metrics.begin_step();
                         life.reached = step;
                         life.kept.reset();
                         resume(step);
                         life.fault.at(step);
                       },
                   .may_begin = [&](std::uint64_t step) { return member.link().may_begin({step}); },
                   .evaluation = {.may_begin =
                                      [&](std::uint64_t step, std::uint64_t piece) {
                                        return member.link().may_begin({step, piece});
                                      },
                                  .goes_on = [&](double share) { life.metrics.evaluates(share); }}};
  Place place{.rank = {member.rank()},
              .pushers = job.local_reduce ? first_of_each_host(workers) : std::vector<std::size_t>(),
              .shard_groups = groups,
              .replicas = job.replicas,
              .one_host = std::ranges::all_of(
                  members, [&](const net::Member& each) { return each.host_id == members.front().host_id; })};
  Training& training = memory->training.emplace(setup, std::move(place), world, std::move(hooks));
  life.metrics.measure(training);
  run_or_keep(member, training, life, [&] {
    const std::uint64_t next = training.run();
    const bool complete = next >= setup.steps();
    const bool stopped = !complete || training.evaluation_cut();
    resume(next);  // where none was left
    life.metrics.flush();
    if (stopped) out::print("worker {}: interrupted at step {}\n", member.rank(), next);
    if (!job.out.empty() && complete) training.save(member.rank() == 0 ? job.out + "/model.safetensors" : "");
    if (memory->device) memory->device->finish();
    if (memory->event_log) memory->event_log->finish();
    if (memory->live) memory->live->finish();
    member.link().on_change({});
    member.link().report(member.report_json(life.metrics.summary_json(training.predict(), training.skipped_steps(),
                                                                      gpu_memory(member, memory->device.get()))));
    member.link().done(next, stopped);
    // A link that closes looks like a lost peer to workers that still wait for others. And others may need this worker
    // to recover from a loss.
    if (memory->group || job.goes_on()) member.link().await_finish();
  });
}

}  // namespace

net::control::Interruption run_worker(const RoleOptions& options, const Registries& registries,
                                      const optim::OptimizerRegistry& optimizers,
                                      const std::function<void(Membership&)>& run_server) {
  // A server in this process reads pushes in place until the server ends. It ends after the coordinator has received
  // the worker's outcome.
  std::shared_ptr<Arena> arena;
  OwnServer server;
  const auto interruption = run_role(options, net::Role::worker, [&](Membership& member) -> Life {
    if (const std::optional<std::size_t> own = member.job().server_in(member.rank()))
      server.start(member, static_cast<std::uint32_t>(*own), options, run_server);
    // Shared because a std::function copies its captures.
    return [&, life = std::make_shared<WorkerLife>(member, registries, optimizers)] { train(member, *life, arena); };
  });
  server.join();
  return interruption;
}

}  // namespace psring::worker
