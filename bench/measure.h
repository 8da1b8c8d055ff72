#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include <psring/bench/collectives.h>
#include <psring/bench/report.h>
#include <psring/bench/timed_team.h>

namespace psring::bench {

/// One way of a contestant to make a call, with its times at the current size.
struct Entry {
  TimedTeam* team = nullptr;
  Task task;
  std::string way;
  std::string detail = {};
  Samples calls = {};
  Samples loops = {};
  std::size_t wrong = 0;

  /// Measures one round.
  void measure();
};

/// Returns the call of the options at a size, with at least one element per rank; the team sets the rank.
CollectiveCall call_of(const CollectivesOptions& options, CollectiveKind kind, std::size_t bytes);
/// Returns an entry for every way of a contestant that can make the call.
std::vector<Entry> entries_of(TimedTeam& team, const CollectiveCall& call);
/// Makes the first calls and checks them; then measures all rounds in turn.
void measure_in_turn(std::vector<Entry>& entries, const CollectivesOptions& options);
/// Returns a contestant's fastest entry; null if it has none.
const Entry* fastest(const std::vector<Entry>& entries, const TimedTeam& team);

}  // namespace psring::bench
