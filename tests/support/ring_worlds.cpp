#include "ring_worlds.h"

#include <exception>
#include <memory>
#include <thread>

#include <psring/common/base/error.h>
#include <psring/common/net/in_process.h>
#include <psring/ring/link_group.h>
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

struct World {
  std::unique_ptr<Links> links;
  std::vector<std::unique_ptr<ring::ProcessGroup>> own;
  std::vector<std::unique_ptr<ring::ProcessGroup>>& groups() { return links ? links->groups : own; }
};

World make_world(const std::string& world, std::size_t ranks) {
  if (world == "shm") return {nullptr, ring::make_shm_groups(ranks, kArenaBytes, {})};
  if (world == "links") return {std::make_unique<Links>(ranks, std::nullopt, false), {}};
  if (world == "background") return {std::make_unique<Links>(ranks, std::nullopt, true), {}};
  return {std::make_unique<Links>(ranks, ring::parse_algorithm("world", world), false), {}};
}

}  // namespace

std::vector<std::string> ring_worlds() {
  return {"shm", "links", "background", "exchange", "halving-doubling", "ring", "star"};
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
