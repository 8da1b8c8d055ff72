#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <psring/cli/language.h>
#include <psring/common/base/events.h>
#include <psring/common/base/json.h>
#include <psring/common/base/layout.h>
#include <psring/common/base/memory_ledger.h>
#include <psring/common/net/link_shaping.h>
#include <psring/ring/inner_group.h>
#include <psring/ring/plan/algorithm.h>

namespace psring::cli {

/// The ranks of a simulated network that run a student's code.
struct RanksOptions {
  std::size_t ranks = 4;
  std::uint64_t seed = 0;  ///< orders the events of a moment, and delays the start of ranks
  net::LinkSpec link{1e9, std::chrono::microseconds(100)};
  std::optional<ring::Algorithm> algorithm;  ///< of all-reduces; none: the tuning table picks
  bool record = false;                       ///< `scene` returns what happened
  std::string label;                         ///< of the scene
  bool vectors_only = false;                 ///< the scene shows one state of each unit, its gradient
  std::vector<UnitLayout> units;             ///< of the scene; the units of transfers count in this list
};

/// The side of one rank: what the code of the exercise may use.
struct RankSide {
  std::size_t rank;
  ring::InnerGroup& group;
  Events& events;
  MemoryLedger& memory;
  const Clock& clock;
  /// The place where the rank waits, in the student's words: "recv from rank 3". Empty: it does not wait.
  std::string waits_for;

  /// Lets virtual time pass, in which the group's operations go on.
  void compute(Nanoseconds duration);
};

/// How a run of all ranks ended.
struct RanksEnd {
  std::string deadlock;  ///< "": none; otherwise who waits for what
  std::string thrown;    ///< "": no rank's code has thrown; otherwise by which rank, and the message
  Json scene;            ///< null if it was not recorded

  bool good() const { return deadlock.empty() && thrown.empty(); }
};

/// Runs `body` at each rank, one rank at a time, until all have ended. Equal options repeat a run exactly.
RanksEnd run_ranks(const RanksOptions& options, Language language, const std::function<void(RankSide&)>& body);

}  // namespace psring::cli
