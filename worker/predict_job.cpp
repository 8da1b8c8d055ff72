#include <algorithm>
#include <numeric>

#include <psring/common/base/text/error.h>
#include <psring/common/proc/job_plan.h>
#include <psring/common/proc/role.h>
#include <psring/ring/planned_group.h>
#include <psring/worker/predict_job.h>
#include <psring/worker/training.h>

namespace psring::worker {
namespace {

/// The links to servers of a process that exchanges nothing with them.
class NoTransport final : public net::Transport {
 public:
  void send(net::Peer /*to*/, net::FrameHeader /*header*/, std::span<const std::byte> /*payload*/) override {}
  std::optional<net::Message> receive(Moment /*deadline*/) override { return std::nullopt; }
  std::size_t in_flight_bytes(net::Peer /*peer*/) const override { return 0; }
  std::string describe(net::Peer /*peer*/) const override { return "planned"; }
  void wake() override {}
};

std::vector<net::Member> members_on(const std::vector<std::size_t>& hosts) {
  std::vector<net::Member> members;
  for (std::size_t rank = 0; rank < hosts.size(); ++rank) {
    net::Member& member = members.emplace_back();
    member.peer = {net::Role::worker, static_cast<std::uint32_t>(rank)};
    member.host_id = member.hostname = std::to_string(hosts[rank]);
  }
  return members;
}

ring::PlannedRanks planned_ranks(const JobOptions& job, const std::vector<std::size_t>& hosts) {
  ring::PlannedRanks ranks{.host_of = hosts};
  if (!job.tuning.empty()) ranks.tuning = ring::Tuning::from_json(job.tuning);
  if (job.algorithm != "auto" && job.algorithm != "direct")
    ranks.algorithm = ring::parse_algorithm("--algorithm", job.algorithm);
  ranks.messages = job.transport == "tcp" || !job.link.empty() || ranks.algorithm;
  return ranks;
}

/// Cuts the setup's units among other owners during its lifetime.
class CutAmong {
 public:
  CutAmong(TrainSetup& setup, std::size_t owners) : setup_(setup), before_(setup.layout().owners) {
    setup_.cut_among(owners);
  }
  ~CutAmong() { setup_.cut_among(before_); }
  CutAmong(const CutAmong&) = delete;
  CutAmong& operator=(const CutAmong&) = delete;

 private:
  TrainSetup& setup_;
  const std::size_t before_;
};

/// Gives the setup the parts of workers, one after the other, and the whole model again in the destructor.
class TakeParts {
 public:
  explicit TakeParts(TrainSetup& setup) : setup_(setup) {}
  ~TakeParts() { setup_.become(std::nullopt); }
  TakeParts(const TakeParts&) = delete;
  TakeParts& operator=(const TakeParts&) = delete;

 private:
  TrainSetup& setup_;
};

/// The part of a job that the predictions of all its workers share.
struct PlannedJob {
  const std::vector<std::size_t>& hosts;  ///< by worker
  std::vector<net::Member> members;
  std::vector<std::size_t> groups;  ///< the workers' shard groups
};

/// REQUIRES: the setup has the worker's part of the model.
Prediction predict_part(TrainSetup& setup, const PlannedJob& planned, std::size_t rank) {
  const JobOptions& job = setup.job();
  const auto& [hosts, members, groups] = planned;
  std::optional<CutAmong> cut;
  if (!groups.empty()) cut.emplace(setup, static_cast<std::size_t>(std::ranges::count(groups, groups[0])));

  MemoryLedger memory;
  const SystemClock clock;
  Events events(clock);
  NoTransport transport;
  std::unique_ptr<ring::ProcessGroup> group;
  if (setup.strategy().ring || setup.strategy().scatters || job.mesh().divides_model())
    group = ring::make_planned_group(planned_ranks(job, hosts), rank);
  std::optional<MeshGroups> mesh;
  if (job.mesh().divides_model()) mesh.emplace(make_mesh_groups(*group, job.mesh(), setup.whole().sharing));
  std::unique_ptr<ring::ProcessGroup> host;
  if (job.local_reduce) {
    const auto before = hosts.begin() + static_cast<std::ptrdiff_t>(rank);
    const auto place = static_cast<std::size_t>(std::count(hosts.begin(), before, hosts[rank]));
    const auto near = static_cast<std::size_t>(std::ranges::count(hosts, hosts[rank]));
    host = ring::make_planned_group({.host_of = std::vector<std::size_t>(near, hosts[rank])}, place);
  }
  const World world{.memory = memory,
                    .clock = clock,
                    .events = events,
                    .transport = setup.strategy().has_servers() ? &transport : nullptr,
                    .group = mesh ? mesh->data.get() : group.get(),
                    .host = host.get(),
                    .mesh = mesh ? &*mesh : nullptr};
  Place place{.rank = {rank},
              .pushers = job.local_reduce ? first_of_each_host(members) : std::vector<std::size_t>(),
              .shard_groups = groups,
              .replicas = job.replicas,
              .one_host = std::ranges::count(hosts, hosts.front()) == std::ssize(hosts)};
  return Training(setup, std::move(place), world).predict();
}

}  // namespace

std::vector<Prediction> predict_workers(TrainSetup& setup, const std::vector<std::size_t>& hosts,
                                        std::span<const std::size_t> ranks) {
  const JobOptions& job = setup.job();
  check(hosts.size() == job.workers, "{} hosts of {} workers", hosts.size(), job.workers);
  if (job.share_host_parameters)  // the part maps memory of its group when it is made
    fail(ErrorKind::usage, "--share-host-parameters: is not predicted before the job runs");
  const std::vector<net::Member> members = members_on(hosts);
  const PlannedJob planned{hosts, members, shard_groups(job, members)};
  const TakeParts parts(setup);
  std::vector<Prediction> predictions;
  for (const std::size_t rank : ranks) {
    check(rank < hosts.size(), "worker {} of {}", rank, hosts.size());
    setup.become(JobRank{rank});
    predictions.push_back(predict_part(setup, planned, rank));
  }
  return predictions;
}

std::vector<std::size_t> place_workers(std::size_t workers, std::size_t hosts) {
  std::vector<std::size_t> placed;
  const auto count = static_cast<std::uint32_t>(workers);
  const auto agents = static_cast<std::uint32_t>(hosts);
  for (std::uint32_t host = 0; host < agents; ++host) placed.resize(net::share_begin(count, agents, host + 1), host);
  return placed;
}

std::uint64_t total_bytes(const std::map<Category, std::uint64_t>& memory) {
  return std::accumulate(memory.begin(), memory.end(), std::uint64_t{0},
                         [](std::uint64_t sum, const auto& one) { return sum + one.second; });
}

Json to_json(const std::map<Category, std::uint64_t>& memory) {
  Json object = Json::object();
  for (const auto& [category, bytes] : memory) object[std::string(to_string(category))] = bytes;
  return object;
}

}  // namespace psring::worker
