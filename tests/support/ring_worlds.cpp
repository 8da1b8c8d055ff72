#include <array>
#include <exception>
#include <map>
#include <memory>
#include <thread>

#include <psring/common/base/text/error.h>
#include <psring/common/net/sim/simulated.h>
#include <psring/ring/hier/group.h>
#include <psring/ring/link/group.h>
#include <psring/ring/plan/algorithm.h>
#include <psring/ring/ring_links.h>
#include <psring/ring/shm/group.h>
#include <psring/tests/support/in_process_network.h>
#include <psring/tests/support/ring_worlds.h>
#include <psring/tests/support/shm_groups.h>

namespace psring::test {
namespace {

constexpr std::size_t kArenaBytes = std::size_t{1} << 30;  // sparse

/// Ranks over in-process links, all with one algorithm, in messages small enough that vectors take several.
struct Links {
  Links(std::size_t ranks, std::optional<ring::Algorithm> algorithm, bool background, const ring::GroupOptions& group)
      : ledgers(ranks) {
    for (std::size_t r = 0; r < ranks; ++r)
      endpoints.push_back(network.endpoint({net::Role::worker, static_cast<std::uint32_t>(r)}, ledgers[r]));
    ring::LinkOptions options;
    options.group = group;
    options.tuning = ring::Tuning::built_in();
    options.algorithm = algorithm;
    options.segment_bytes = 4096;
    options.background = background;
    for (std::size_t r = 0; r < ranks; ++r) groups.push_back(ring::make_link_group(*endpoints[r], r, ranks, options));
  }

  net::InProcessNetwork network{1};
  std::vector<ByteLedger> ledgers;
  std::vector<std::unique_ptr<net::Transport>> endpoints;
  std::vector<std::unique_ptr<ring::InnerGroup>> groups;
};

/// Ranks that meet as processes do: sockets, proofs of the key, memory that is passed on.
struct Met {
  Met(std::size_t ranks, net::Way way, std::optional<ring::Algorithm> algorithm,
      const std::function<std::size_t(std::size_t)>& host_of, const ring::GroupOptions& group)
      : ledgers(ranks), groups(ranks) {
    const net::JobKey key = net::JobKey::generate();
    std::vector<net::Member> members;
    for (std::uint32_t r = 0; r < ranks; ++r) {
      const net::Peer self{net::Role::worker, r};
      const std::string host = "host " + std::to_string(host_of(r));
      links.push_back(std::make_unique<ring::RingLinks>(
          key, net::DataLinks::Options{.self = {self, 0}, .way = way, .host_id = host}, ledgers[r]));
      members.push_back({.peer = self, .host_id = host, .addresses = links[r]->listen()});
    }
    ring::LinkOptions options;
    options.group = group;
    options.tuning = ring::Tuning::built_in();
    options.algorithm = algorithm;
    options.segment_bytes = 16384;
    std::vector<std::jthread> threads;
    for (std::size_t r = 0; r < ranks; ++r)
      threads.emplace_back([&, r] {
        groups[r] = links[r]->connect(members, std::make_shared<Arena>(kArenaBytes), options,
                                      SystemClock().now() + std::chrono::seconds(30));
      });
  }

  std::vector<ByteLedger> ledgers;
  std::vector<std::unique_ptr<ring::RingLinks>> links;
  std::vector<std::unique_ptr<ring::ProcessGroup>> groups;
};

/// Hosts of 2, 1, 3, 1, 1 ... ranks, not one after the other.
std::size_t host_of(std::size_t rank) {
  constexpr std::array<std::size_t, 6> kHosts = {0, 0, 1, 2, 2, 2};
  return rank < kHosts.size() ? kHosts[rank] : rank % 2 == 0 ? rank : 1;
}

/// Hosts whose ranks are threads, and in-process links between all of them.
std::vector<std::unique_ptr<ring::ProcessGroup>> make_hierarchical(Links& links, std::size_t ranks,
                                                                   const ring::GroupOptions& group) {
  std::map<std::size_t, std::vector<std::size_t>> hosts;
  std::vector<std::size_t> hosts_of;
  for (std::size_t r = 0; r < ranks; ++r) {
    hosts_of.push_back(host_of(r));
    hosts[host_of(r)].push_back(r);
  }
  std::vector<std::unique_ptr<ring::ProcessGroup>> groups(ranks);
  for (const auto& [host, members] : hosts) {
    const std::vector<ring::ShmWorld> worlds = ring::make_shm_worlds(members.size(), kArenaBytes);
    for (std::size_t i = 0; i < members.size(); ++i)
      groups[members[i]] = ring::make_hierarchical_group(
          ring::make_shm_group(worlds[i], group), std::move(links.groups[members[i]]), members[i], hosts_of, group);
  }
  return groups;
}

struct World {
  std::unique_ptr<Links> links;
  std::vector<std::unique_ptr<ring::ProcessGroup>> own;
  std::unique_ptr<Met> met = nullptr;
  std::vector<ring::ProcessGroup*> groups() {
    std::vector<ring::ProcessGroup*> all;
    if (links && own.empty())
      for (const auto& group : links->groups) all.push_back(group.get());
    else
      for (const auto& group : met ? met->groups : own) all.push_back(group.get());
    return all;
  }
};

World make_world(const std::string& world, std::size_t ranks, const ring::GroupOptions& group) {
  World made;
  if (world == "shm") {
    made.own = ring::make_shm_groups(ranks, kArenaBytes, group);
  } else if (world.starts_with("met") || world.starts_with("tcp")) {
    const bool spread = world == "met-hierarchical";
    const auto algorithm = world == "tcp-ring" ? std::optional(ring::Algorithm::ring) : std::nullopt;
    made.met = std::make_unique<Met>(
        ranks, world.starts_with("tcp") ? net::Way::tcp : net::Way::automatic, algorithm,
        [&](std::size_t rank) { return spread ? host_of(rank) : 0; }, group);
  } else {
    const bool plain = world.starts_with("hierarchical") || world == "links" || world == "background";
    std::optional<ring::Algorithm> algorithm;
    if (!plain) algorithm = ring::parse_algorithm("world", world);
    made.links = std::make_unique<Links>(ranks, algorithm, world.ends_with("background"), group);
    if (world.starts_with("hierarchical")) made.own = make_hierarchical(*made.links, ranks, group);
  }
  return made;
}

/// One rank at a time, with a clock that only the network moves.
void run_simulated(std::size_t ranks, const std::function<void(ring::ProcessGroup&)>& body,
                   const ring::GroupOptions& options) {
  net::SimulatedNetwork network({.ranks = ranks});
  network.run([&](std::size_t rank) {
    const auto group = ring::make_link_group(
        network.transport(rank), rank, ranks,
        {.group = options, .tuning = ring::Tuning::built_in(), .segment_bytes = 4096, .clock = &network.clock()});
    body(*group);
  });
}

}  // namespace

std::vector<std::string> ring_worlds() {
  std::vector<std::string> worlds = {"shm", "links", "background"};
  for (const ring::Algorithm* algorithm : ring::kAlgorithms) worlds.emplace_back(algorithm->name);
  worlds.insert(worlds.end(), {"met-shm", "tcp", "tcp-ring", "hierarchical", "hierarchical-background",
                               "met-hierarchical", "simulated"});
  return worlds;
}

void run_ranks(const std::string& world, std::size_t ranks, const std::function<void(ring::ProcessGroup&)>& body,
               const ring::GroupOptions& options) {
  if (world == "simulated") return run_simulated(ranks, body, options);
  World made = make_world(world, ranks, options);
  const std::vector<ring::ProcessGroup*> groups = made.groups();
  std::vector<std::exception_ptr> errors(ranks);
  {
    std::vector<std::jthread> threads;
    for (std::size_t r = 0; r < ranks; ++r)
      threads.emplace_back([&, r] {
        try {
          body(*groups[r]);
        } catch (...) {
          errors[r] = std::current_exception();
        }
      });
  }
  for (const std::exception_ptr& error : errors)
    if (error) std::rethrow_exception(error);
}

}  // namespace psring::test
