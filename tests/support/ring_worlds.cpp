#include "ring_worlds.h"

#include <exception>
#include <memory>
#include <thread>

#include <psring/common/base/error.h>
#include <psring/common/net/in_process.h>
#include <psring/ring/link_group.h>
#include <psring/ring/ring_links.h>
#include <psring/ring/shm_group.h>

namespace psring::test {
namespace {

constexpr std::size_t kArenaBytes = std::size_t{1} << 30;  // sparse

/// Ranks over in-process links, all with one algorithm, in messages small enough that vectors take several.
struct Links {
  explicit Links(std::size_t ranks, std::optional<ring::Algorithm> algorithm, bool background) : ledgers(ranks) {
    for (std::size_t r = 0; r < ranks; ++r)
      endpoints.push_back(network.endpoint({net::Role::worker, static_cast<std::uint32_t>(r)}, ledgers[r]));
    ring::LinkOptions options;
    options.tuning = ring::Tuning::built_in();
    options.algorithm = algorithm;
    options.segment_bytes = 4096;
    options.background = background;
    for (std::size_t r = 0; r < ranks; ++r) groups.push_back(ring::make_link_group(*endpoints[r], r, ranks, options));
  }

  net::InProcessNetwork network{1};
  std::vector<ByteLedger> ledgers;
  std::vector<std::unique_ptr<net::Transport>> endpoints;
  std::vector<std::unique_ptr<ring::ProcessGroup>> groups;
};

/// Ranks that meet as processes do: sockets, proofs of the key, memory that is passed on.
struct Met {
  Met(std::size_t ranks, net::Way way, std::optional<ring::Algorithm> algorithm) : ledgers(ranks), groups(ranks) {
    const net::JobKey key = net::JobKey::generate();
    std::vector<net::Member> members;
    for (std::uint32_t r = 0; r < ranks; ++r) {
      const net::Peer self{net::Role::worker, r};
      links.push_back(std::make_unique<ring::RingLinks>(
          key, net::DataLinks::Options{.self = {self, 0}, .way = way, .host_id = "here"}, ledgers[r]));
      members.push_back({.peer = self, .host_id = "here", .addresses = links[r]->listen()});
    }
    ring::LinkOptions options;
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

struct World {
  std::unique_ptr<Links> links;
  std::vector<std::unique_ptr<ring::ProcessGroup>> own;
  std::unique_ptr<Met> met = nullptr;
  std::vector<std::unique_ptr<ring::ProcessGroup>>& groups() { return links ? links->groups : met ? met->groups : own; }
};

World make_world(const std::string& world, std::size_t ranks) {
  if (world == "met-shm") return {nullptr, {}, std::make_unique<Met>(ranks, net::Way::automatic, std::nullopt)};
  if (world == "tcp") return {nullptr, {}, std::make_unique<Met>(ranks, net::Way::tcp, std::nullopt)};
  if (world == "tcp-ring") return {nullptr, {}, std::make_unique<Met>(ranks, net::Way::tcp, ring::Algorithm::ring)};
  if (world == "shm") return {nullptr, ring::make_shm_groups(ranks, kArenaBytes, {})};
  if (world == "links") return {std::make_unique<Links>(ranks, std::nullopt, false), {}};
  if (world == "background") return {std::make_unique<Links>(ranks, std::nullopt, true), {}};
  return {std::make_unique<Links>(ranks, ring::parse_algorithm("world", world), false), {}};
}

}  // namespace

std::vector<std::string> ring_worlds() {
  return {"shm", "links", "background", "exchange", "halving-doubling", "ring", "star", "met-shm", "tcp", "tcp-ring"};
}

void run_ranks(const std::string& world, std::size_t ranks, const std::function<void(ring::ProcessGroup&)>& body) {
  World made = make_world(world, ranks);
  auto& groups = made.groups();
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
