#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include <psring/bench/collectives.h>
#include <psring/bench/report.h>
#include <psring/bench/team.h>

namespace psring::bench {

/// One way of a contestant at the size that is measured.
struct Entry {
  Team* team = nullptr;
  Task task;
  std::string way;
  std::string how = {};
  Samples calls = {};
  Samples loops = {};
  std::size_t wrong = 0;

  /// One round.
  void measure();
};

/// What the options ask for at a size, with at least one element for each rank; the rank is filled in by the team.
CollectiveCall call_of(const CollectivesOptions& options, CollectiveKind kind, std::size_t bytes);
/// Every way of a contestant that can make the call.
std::vector<Entry> entries_of(Team& team, const CollectiveCall& call);
/// First calls, compared; then all rounds.
void measure_in_turn(std::vector<Entry>& entries, const CollectivesOptions& options);
/// The fastest of a contestant's; null where it has none.
const Entry* fastest(const std::vector<Entry>& entries, const Team& team);

}  // namespace psring::bench
