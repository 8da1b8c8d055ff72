#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <tuple>
#include <utility>

#include <fmt/format.h>

#include <psring/common/base/elements.h>
#include <psring/ring/link/plans.h>
#include <psring/view/step/collective_plans.h>

namespace psring::view {
namespace {

using ring::Action;
using ring::Collective;
using Kind = Action::Kind;

bool receives(const Action& action) { return action.kind != Kind::send && action.kind != Kind::combine; }

/// The round of each action: that in which a receiving action uses its message, or after which a send may leave.
class Rounds {
 public:
  explicit Rounds(const std::vector<ring::Plan>& plans) : plans_(plans), known_(plans.size()), match_(plans.size()) {
    std::map<std::pair<std::size_t, std::size_t>, std::vector<std::size_t>> sends;  // by sender and receiver
    for (std::size_t rank = 0; rank < plans.size(); ++rank) {
      known_[rank].resize(plans[rank].actions.size());
      match_[rank].resize(plans[rank].actions.size());
      for (std::size_t i = 0; i < plans[rank].actions.size(); ++i)
        if (plans[rank].actions[i].kind == Kind::send) sends[{rank, plans[rank].actions[i].peer}].push_back(i);
    }
    std::map<std::pair<std::size_t, std::size_t>, std::size_t> taken;
    for (std::size_t rank = 0; rank < plans.size(); ++rank)
      for (std::size_t i = 0; i < plans[rank].actions.size(); ++i) {
        const Action& action = plans[rank].actions[i];
        if (!receives(action)) continue;
        const std::pair<std::size_t, std::size_t> link{action.peer, rank};
        match_[rank][i] = sends.at(link).at(taken[link]++);
      }
  }

  std::size_t of(std::size_t rank, std::size_t i) {
    if (!known_[rank][i]) known_[rank][i] = find(rank, i);
    return *known_[rank][i];
  }

 private:
  /// A range that was sent before is sent with its old value: a later action waits for the round of the send.
  std::size_t find(std::size_t rank, std::size_t i) {
    const std::vector<Action>& actions = plans_[rank].actions;
    const Action& action = actions[i];
    if (action.kind == Kind::send) return action.after == Action::kAtOnce ? 0 : of(rank, action.after) + 1;
    std::size_t round = receives(action) ? of(action.peer, match_[rank][i]) : 0;
    for (std::size_t before = i; before-- > 0;) {
      const bool is_send = actions[before].kind == Kind::send;
      if (is_send && actions[before].range.intersect(action.range).empty()) continue;
      round = std::max(round, of(rank, before));
      if (!is_send) break;
    }
    return round;
  }

  const std::vector<ring::Plan>& plans_;
  std::vector<std::vector<std::optional<std::size_t>>> known_;
  std::vector<std::vector<std::size_t>> match_;  ///< of receiving actions: the sender's action
};

/// Returns the smallest ranges that the messages move together.
std::vector<Range> chunks_of(const std::vector<PlanMessage>& messages) {
  std::set<std::size_t> cuts;
  for (const PlanMessage& message : messages) cuts.insert({message.range.begin, message.range.end});
  std::vector<Range> chunks;
  for (auto cut = cuts.begin(); cut != cuts.end() && std::next(cut) != cuts.end(); ++cut) {
    const Range chunk{*cut, *std::next(cut)};
    const auto moves = [&](const PlanMessage& message) { return message.range.contains(chunk); };
    if (std::any_of(messages.begin(), messages.end(), moves)) chunks.push_back(chunk);
  }
  return chunks;
}

const char* name_of(Kind action) {
  return action == Kind::receive ? "copy" : action == Kind::collect ? "collect" : "reduce";
}

Json json_of(Range range) { return Json(std::vector<std::size_t>{range.begin, range.end}); }

Json rounds_of(const std::vector<PlanMessage>& messages) {
  Json rounds = Json::array();
  Json round = Json::array();
  for (std::size_t i = 0; i < messages.size(); ++i) {
    const PlanMessage& message = messages[i];
    Json json = Json::array();
    for (const std::size_t number : {message.from, message.to, message.range.begin, message.range.end})
      json.push_back(number);
    json.push_back(name_of(message.action));
    round.push_back(std::move(json));
    if (i + 1 == messages.size() || messages[i + 1].round != message.round)
      rounds.push_back(std::exchange(round, Json::array()));
  }
  return rounds;
}

/// Six digits are enough to follow a sum.
Json short_number(float value) { return std::isfinite(value) ? Json(std::stod(fmt::format("{:.6g}", value))) : Json(); }

}  // namespace

std::vector<PlanMessage> messages_of(const std::vector<ring::Plan>& by_rank) {
  Rounds rounds(by_rank);
  std::vector<PlanMessage> messages;
  for (std::size_t rank = 0; rank < by_rank.size(); ++rank)
    for (std::size_t i = 0; i < by_rank[rank].actions.size(); ++i) {
      const Action& action = by_rank[rank].actions[i];
      if (!receives(action) || action.range.empty()) continue;
      messages.push_back({rounds.of(rank, i), action.peer, rank, action.range, action.kind});
    }
  std::sort(messages.begin(), messages.end(), [](const PlanMessage& a, const PlanMessage& b) {
    return std::tie(a.round, a.from, a.to, a.range) < std::tie(b.round, b.from, b.to, b.range);
  });
  return messages;
}

std::optional<std::size_t> CollectivePlans::number(const ring::Request& request, std::size_t ranks,
                                                   const ring::LinkOptions& options) {
  const ring::Call& call = request.call;
  const bool has_plan = call.collective == Collective::all_reduce || call.collective == Collective::reduce_scatter ||
                        call.collective == Collective::all_gather || call.collective == Collective::broadcast;
  if (!has_plan || ranks < 2 || call.count == 0) return std::nullopt;
  const std::string shape = fmt::format("{} {} {} {} {} {}", to_string(call.collective), static_cast<int>(call.op),
                                        to_string(call.type), call.root, call.count, call.fingerprint) +
                            fmt::format(" {}", ranks);
  const auto [at, is_new] = numbers_.try_emplace(shape, entries_.size());
  if (is_new) entries_.push_back(make(request, ranks, options));
  return at->second;
}

/// Segments are left out: a message of the plan may travel as several frames.
CollectivePlans::Entry CollectivePlans::make(const ring::Request& request, std::size_t ranks,
                                             const ring::LinkOptions& options) {
  const ring::Call& call = request.call;
  ring::LinkOptions whole = options;
  whole.segment_bytes = std::numeric_limits<std::size_t>::max() / 4;
  std::vector<ring::Plan> plans;
  for (std::size_t rank = 0; rank < ranks; ++rank) plans.push_back(ring::LinkPlans(whole, rank, ranks).plan(request));
  const std::vector<PlanMessage> messages = messages_of(plans);
  const std::size_t bytes = call.count * call.type.bytes();
  Entry entry{.json = {{"operation", to_string(call.collective)},
                       {"algorithm", ring::LinkPlans(whole, 0, ranks).name(call.collective, bytes)},
                       {"ranks", ranks},
                       {"elements", call.count},
                       {"type", to_string(call.type)}},
              .chunks = chunks_of(messages),
              .collective = call.collective,
              .root = call.root,
              .parts = request.parts != nullptr ? *request.parts : ring::Parts()};
  if (call.collective == Collective::all_reduce || call.collective == Collective::reduce_scatter)
    entry.json["reduction"] = request.op.name();
  if (call.collective == Collective::broadcast) entry.json["root"] = call.root;
  if (request.parts != nullptr) {
    Json parts = Json::array();
    for (const std::vector<Range>& of_rank : entry.parts) {
      Json ranges = Json::array();
      for (const Range range : of_rank) ranges.push_back(json_of(range));
      parts.push_back(std::move(ranges));
    }
    entry.json["parts"] = std::move(parts);
  }
  Json chunks = Json::array();
  for (const Range chunk : entry.chunks) chunks.push_back(json_of(chunk));
  entry.json["chunks"] = std::move(chunks);
  entry.json["rounds"] = rounds_of(messages);
  return entry;
}

bool CollectivePlans::Entry::has_meaning(std::size_t rank, Range chunk, bool after) const {
  const auto owns = [&] {
    return std::any_of(parts[rank].begin(), parts[rank].end(), [&](Range part) { return part.contains(chunk); });
  };
  if (collective == Collective::reduce_scatter) return !after || owns();
  if (collective == Collective::all_gather) return after || owns();
  if (collective == Collective::broadcast) return after || rank == root;
  return true;
}

Json CollectivePlans::values(std::size_t plan, std::size_t rank, const ring::Vector& data, bool after) const {
  const Entry& entry = entries_[plan];
  const DType type = data.type.dtype;
  if (data.type.located || (type != DType::f32 && type != DType::bf16 && type != DType::f16)) return {};
  Json values = Json::array();
  for (const Range chunk : entry.chunks) {
    float value = std::numeric_limits<float>::quiet_NaN();
    if (entry.has_meaning(rank, chunk, after))
      widen(ConstElements(data.part({chunk.begin, chunk.begin + 1}).data, 1, type), std::span(&value, 1));
    values.push_back(short_number(value));
  }
  return values;
}

Json CollectivePlans::list() const {
  Json plans = Json::array();
  for (const Entry& entry : entries_) plans.push_back(entry.json);
  return plans;
}

}  // namespace psring::view
