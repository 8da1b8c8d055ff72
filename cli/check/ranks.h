#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <psring/cli/check/exercise.h>
#include <psring/cli/check/exercises.h>
#include <psring/common/base/clock.h>
#include <psring/common/base/events/events.h>
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
  std::optional<Language> record;            ///< the language of `scene`; none: it is not recorded
  std::string label;                         ///< of the scene
  bool vectors_only = false;                 ///< the scene shows one state of each unit, its gradient
  /// Names and elements, for the scene; the units of transfers count in this list.
  std::vector<std::pair<std::string, std::size_t>> units;
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

/// The end of a run of all ranks.
struct RanksEnd {
  Message deadlock;  ///< empty: none; otherwise who waits for what
  Message thrown;    ///< empty: no rank's code has thrown; otherwise by which rank, and the message
  Json scene;        ///< null if it was not recorded

  /// Refuses a run that has not ended well. Both texts have the fields `ranks`, and who waits or has thrown.
  void require_good(std::size_t ranks, const Text& deadlock_text, const Text& thrown_text) const;
};

/// Runs `body` at each rank, one rank at a time, until all have ended. Equal options repeat a run exactly.
RanksEnd run_ranks(const RanksOptions& options, const std::function<void(RankSide&)>& body);

/// Runs a student's code at all ranks by `run`, and has `inspect` refuse a wrong result. `run` takes
/// RanksOptions::record and returns a result with a RanksEnd `end`. The scene of a refused run is recorded in a second
/// run, unless `inspect` has set a scene that shows the cause. Returns the result.
template <class Run, class Inspect>
auto judge_run(const Submission& submission, const Run& run, const Inspect& inspect) {
  auto result = run(std::optional<Language>());
  try {
    inspect(result);
  } catch (const Mistake&) {
    if (submission.scene.is_null()) submission.scene = run(std::optional(submission.language)).end.scene;
    throw;
  }
  return result;
}

/// By sender and receiver: the sizes of the messages that were not received yet.
using MessageSizes = std::map<std::pair<std::size_t, std::size_t>, std::deque<std::size_t>>;

/// The messages of a rank through psring's own group: counted, with errors that a student understands. Both calls throw
/// usage for a rank that does not exist, and `recv` for a message of another size.
class CountedLink final : public exercise::Link {
 public:
  /// `sizes`: of all ranks' messages; one rank at a time runs. `noun`: the exercise's word for a rank.
  CountedLink(RankSide& side, MessageSizes& sizes, const char* noun) : side_(side), sizes_(sizes), noun_(noun) {}

  std::size_t rank() const override { return side_.rank; }
  std::size_t size() const override { return side_.group.size(); }
  void send(std::size_t to, std::span<const float> values) override;
  void recv(std::size_t from, std::span<float> values) override { recv(from, values, ""); }
  /// `after`: stands behind the place where the rank waits, if it waits for ever.
  void recv(std::size_t from, std::span<float> values, const std::string& after);

  std::size_t sent_bytes() const { return sent_bytes_; }

 private:
  void require_other(const char* call, std::size_t other) const;

  RankSide& side_;
  MessageSizes& sizes_;
  const char* noun_;
  std::size_t sent_bytes_ = 0;
};

}  // namespace psring::cli
