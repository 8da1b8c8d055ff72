#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <psring/common/base/text/json.h>
#include <psring/ring/link/options.h>
#include <psring/ring/plan/plan.h>
#include <psring/ring/request.h>

namespace psring::view {

/// A message of a plan, as all ranks see it.
struct PlanMessage {
  std::size_t round = 0;  ///< messages of a round carry the values from before the round
  std::size_t from = 0;
  std::size_t to = 0;
  Range range;
  ring::Action::Kind action = ring::Action::Kind::receive;  ///< the receiver's
};

/// Pairs the sends of all ranks' plans with the actions that receive them. Returns the messages by round, then by
/// sender, receiver and range. A message belongs to the round in which its receiver uses it.
std::vector<PlanMessage> messages_of(const std::vector<ring::Plan>& by_rank);

/// The plans of a job's collectives, each shape once, as docs/scene.md describes them.
class CollectivePlans {
 public:
  /// Returns the number of the call's plan; nothing for barriers and messages. `options`: those of the group.
  std::optional<std::size_t> number(const ring::Request& request, std::size_t ranks, const ring::LinkOptions& options);

  /// The sampled elements of a rank: the first of each chunk, or null where the chunk has no meaning for the rank
  /// before (`after`: at the end of) the collective.
  Json values(std::size_t plan, std::size_t rank, const ring::Vector& data, bool after) const;

  Json list() const;

 private:
  struct Entry {
    Json json;
    std::vector<Range> chunks;
    ring::Collective collective = ring::Collective::barrier;
    std::size_t root = 0;
    ring::Parts parts;

    bool has_meaning(std::size_t rank, Range chunk, bool after) const;
  };
  static Entry make(const ring::Request& request, std::size_t ranks, const ring::LinkOptions& options);

  std::vector<Entry> entries_;
  std::map<std::string, std::size_t> numbers_;  ///< by shape
};

}  // namespace psring::view
