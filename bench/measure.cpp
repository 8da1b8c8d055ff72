#include <algorithm>

#include <psring/bench/measure.h>

namespace psring::bench {
namespace {

constexpr double kRoundSeconds = 0.1;

/// Makes the first calls, checks their result, and chooses the number of iterations per round.
void warm_up(Entry& entry, const CollectivesOptions& options) {
  entry.task.check = entry.task.kind == Task::Kind::measure;
  entry.task.warm_up = static_cast<std::uint32_t>(options.warm_up);
  entry.task.iterations = 3;
  const TimedTeam::Round round = entry.team->measure(entry.task);
  entry.wrong = round.wrong;
  entry.task.check = options.check;
  const double fitting = std::clamp(kRoundSeconds / std::max(round.loop_s, 1e-7), 5.0, 1000.0);
  entry.task.iterations = static_cast<std::uint32_t>(options.iterations);
  if (options.iterations == 0) entry.task.iterations = static_cast<std::uint32_t>(fitting);
}

}  // namespace

void Entry::measure() {
  const TimedTeam::Round round = team->measure(task);
  calls.values.push_back(round.call_s);
  loops.values.push_back(round.loop_s);
  wrong += round.wrong;
  detail = round.detail;
}

CollectiveCall call_of(const CollectivesOptions& options, CollectiveKind kind, std::size_t bytes) {
  const std::size_t unit = has_parts(kind) ? options.workers : 1;
  const std::size_t count = std::max<std::size_t>(1, bytes / size_bytes(options.dtype) / unit) * unit;
  return {.kind = kind,
          .dtype = options.dtype,
          .redop = options.redop,
          .root = static_cast<std::uint32_t>(options.root),
          .ranks = static_cast<std::uint32_t>(options.workers),
          .count = count};
}

std::vector<Entry> entries_of(TimedTeam& team, const CollectiveCall& call) {
  std::vector<Entry> entries;
  const std::vector<std::string> ways = team.ways(call);
  for (std::size_t w = 0; w < ways.size(); ++w)
    entries.push_back(
        {&team, {.kind = Task::Kind::measure, .way = static_cast<std::uint32_t>(w), .call = call}, ways[w]});
  return entries;
}

void measure_in_turn(std::vector<Entry>& entries, const CollectivesOptions& options) {
  for (Entry& entry : entries) warm_up(entry, options);
  for (std::size_t round = 0; round < options.rounds; ++round)
    for (Entry& entry : entries) entry.measure();
}

const Entry* fastest(const std::vector<Entry>& entries, const TimedTeam& team) {
  const Entry* best = nullptr;
  for (const Entry& entry : entries)
    if (entry.team == &team && entry.task.kind == Task::Kind::measure &&
        (best == nullptr || entry.calls.median() < best->calls.median()))
      best = &entry;
  return best;
}

}  // namespace psring::bench
