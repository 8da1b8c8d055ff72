#include <algorithm>
#include <cstring>
#include <utility>

#include <fmt/format.h>

#include <psring/ring/link/endpoint.h>
#include <psring/ring/link/engine.h>
#include <psring/ring/link/operation.h>

namespace psring::ring {

LinkOperation::LinkOperation(LinkEndpoint& group, std::uint64_t number, const Request& request, Plan plan)
    : group_(group),
      number_(number),
      said_(request.announced(number, group.size())),
      data_(request.data),
      op_(request.op),
      plan_(std::move(plan)) {}

bool LinkOperation::advance() {
  return group_.engine().locked([&] {
    if (!finished_) group_.engine().advance_for(*this);
    return finished_;
  });
}

void LinkOperation::wait() {
  group_.engine().locked([&] {
    if (!finished_) group_.engine().wait_for(*this);
  });
}

std::vector<std::size_t> LinkOperation::awaited() const {
  return {group_.engine().locked([&] { return group_.name(missing()); })};
}

/// The next receiving action.
const Action* LinkOperation::next() const {
  std::size_t i = taken_;
  while (i < plan_.actions.size() && plan_.actions[i].kind == Action::Kind::send) ++i;
  return i < plan_.actions.size() ? &plan_.actions[i] : nullptr;
}

std::size_t LinkOperation::missing() const {
  if (const Action* action = next(); action != nullptr && action->kind != Action::Kind::combine) return action->peer;
  for (const auto& [to, sent] : sent_to_)
    if (!has_left(to)) return to;
  return group_.rank();
}

void LinkOperation::probe() const { group_.probe(*this); }

std::string LinkOperation::doing() const {
  return waiting_in(group_.name(group_.rank()), call(), said_.number, {group_.name(missing())});
}

bool LinkOperation::step() {
  if (finished_) return true;
  while (send_ready() || do_next()) {
  }
  return finished_ = sent_ == plan_.actions.size() && next() == nullptr && all_left();
}

bool LinkOperation::send_ready() {
  const std::size_t before = sent_;
  for (; sent_ < plan_.actions.size(); ++sent_) {
    const Action& action = plan_.actions[sent_];
    if (action.kind != Action::Kind::send) continue;
    if (action.after != Action::kAtOnce && action.after >= taken_) break;
    sent_to_[action.peer] = group_.send_frame(*this, action.peer, action.range,
                                              {at(action.range.begin), action.range.size() * data_.type.bytes()});
  }
  return sent_ != before;
}

bool LinkOperation::has_left(std::size_t to) const { return group_.engine().left(group_.peer(to), sent_to_.at(to)); }

/// Have the bytes of this operation's sends left the process? Until then the vector must not change. Bytes of later
/// operations to the same rank may still wait.
bool LinkOperation::all_left() const {
  return std::all_of(sent_to_.begin(), sent_to_.end(), [&](const auto& sent) { return has_left(sent.first); });
}

bool LinkOperation::do_next() {
  while (taken_ < plan_.actions.size() && plan_.actions[taken_].kind == Action::Kind::send) ++taken_;
  if (taken_ == plan_.actions.size()) return false;
  const Action& action = plan_.actions[taken_];
  const bool overwrites = action.kind == Action::Kind::combine || action.kind == Action::Kind::merge;
  if (overwrites && !all_left()) return false;
  if (action.kind == Action::Kind::combine) {
    combine(action.range);
    ++taken_;
    return true;
  }
  std::optional<net::Message> message = take_from_inbox(action);
  if (!message) return false;
  const std::span<const std::byte> payload = message->payload;
  switch (action.kind) {
    case Action::Kind::receive:
      if (!payload.empty() && payload.data() != at(action.range.begin))
        std::memcpy(at(action.range.begin), payload.data(), payload.size());
      break;
    case Action::Kind::reduce:
    case Action::Kind::merge:
      reduce_in(action, payload);
      break;
    case Action::Kind::collect:
      collected_.push_back({action.peer, std::move(*message)});
      break;
    default:
      break;
  }
  ++taken_;
  return true;
}

std::optional<net::Message> LinkOperation::take_from_inbox(const Action& action) {
  const auto found =
      std::find_if(inbox_.begin(), inbox_.end(), [&](const Arrived& each) { return each.from == action.peer; });
  if (found == inbox_.end()) return std::nullopt;
  net::Message message = std::move(found->message);
  inbox_.erase(found);
  if (message.header.range() != action.range || message.payload.size() != action.range.size() * data_.type.bytes())
    group_.engine().failure().end(Error(
        ErrorKind::protocol, fmt::format("[ring] rank {} sent [{}, {}) of {}, expected [{}, {})",
                                         group_.name(action.peer), message.header.begin, message.header.end,
                                         name_of(said_.call, said_.number), action.range.begin, action.range.end)));
  return message;
}

/// A mean is divided once, by the last action of a range.
void LinkOperation::reduce_in(const Action& action, std::span<const std::byte> payload) {
  const std::byte* from[] = {at(action.range.begin), payload.data()};
  if (action.kind == Action::Kind::merge && action.peer < group_.rank()) std::swap(from[0], from[1]);
  std::byte* const to[] = {at(action.range.begin)};
  const ReduceOp partial = op_.kind() == ReduceOp::Kind::mean && !action.last ? ReduceOp::Kind::sum : op_;
  reduce(partial, data_.type, from, to, action.range.size(), 1.0 / static_cast<double>(said_.ranks));
}

void LinkOperation::combine(Range range) {
  std::vector<const std::byte*> from(group_.size(), at(range.begin));
  for (const Arrived& each : collected_) from[each.from] = each.message.payload.data();
  std::byte* const to[] = {at(range.begin)};
  reduce(op_, data_.type, from, to, range.size(), 1.0 / static_cast<double>(said_.ranks));
  collected_.clear();
}

/// A message belongs to the action with the same place among the actions that name its sender; the messages in the
/// inbox come first. The range does not identify the action: a ring receives each part twice from its neighbour, and
/// has to reduce it the first time.
std::span<std::byte> LinkOperation::place(std::size_t from, Range range) const {
  auto waiting =
      std::count_if(inbox_.begin(), inbox_.end(), [&](const Arrived& arrived) { return arrived.from == from; });
  for (std::size_t i = taken_; i < plan_.actions.size(); ++i) {
    const Action& action = plan_.actions[i];
    const bool arrives = action.kind != Action::Kind::send && action.kind != Action::Kind::combine;
    if (!arrives || action.peer != from || waiting-- > 0) continue;
    if (action.kind != Action::Kind::receive || action.range != range) return {};
    return {at(range.begin), range.size() * data_.type.bytes()};
  }
  return {};
}

}  // namespace psring::ring
