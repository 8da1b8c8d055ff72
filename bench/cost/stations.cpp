#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

#include <psring/bench/cost/stations.h>
#include <psring/common/base/error.h>

namespace psring::bench {

Stations::Ticket Stations::submit(double ready_s, std::vector<Leg> legs, Ticket after) {
  check(!legs.empty(), "a transfer without legs");
  const Ticket ticket = transfers_.size();
  transfers_.push_back({.legs = std::move(legs), .begin_s = ready_s, .end_s = ready_s});
  if (after == kNone || transfers_[after].done) {
    if (after != kNone) transfers_[ticket].end_s = std::max(ready_s, transfers_[after].end_s);
    start(ticket);
  } else {
    transfers_[after].followers.push_back(ticket);
  }
  return ticket;
}

void Stations::start(Ticket ticket) {
  Transfer& transfer = transfers_[ticket];
  transfer.begin_s = transfer.end_s;
  arrive(ticket, transfer.end_s + transfer.legs.front().after_s);
}

double Stations::end_of(Ticket ticket) {
  while (!transfers_[ticket].done) serve_first();
  return transfers_[ticket].end_s;
}

void Stations::serve_first() {
  const Arrival arrival = arrivals_.top();
  arrivals_.pop();
  if (arrival.ticket == kNone) return end_turns(arrival);
  Transfer& transfer = transfers_[arrival.ticket];
  const Leg& leg = transfer.legs[transfer.next++];
  if (leg.takes_turns && leg.service_s > 0) return take_turn(arrival, leg);
  const double begin = leg.service_s > 0 ? std::max(arrival.at_s, free_[leg.station]) : arrival.at_s;
  if (leg.service_s > 0) {
    free_[leg.station] = begin + leg.service_s;
    busy_[leg.station] += leg.service_s;
  }
  transfer.begin_s = begin;
  transfer.end_s =
      std::max({begin + leg.service_s + leg.drain_s, arrival.at_s + leg.alone_s, transfer.end_s + leg.tail_s});
  leave(arrival.ticket);
}

void Stations::leave(Ticket ticket) {
  Transfer& transfer = transfers_[ticket];
  if (transfer.next == transfer.legs.size()) {
    transfer.done = true;
    transfer.legs = {};
    for (const Ticket follower : std::exchange(transfer.followers, {})) {
      transfers_[follower].end_s = std::max(transfers_[follower].end_s, transfers_[ticket].end_s);
      start(follower);
    }
    return;
  }
  const Leg& next = transfer.legs[transfer.next];
  arrive(ticket, (next.streams ? transfer.begin_s : transfer.end_s) + next.after_s);
}

void Stations::take_turn(const Arrival& arrival, const Leg& leg) {
  advance_turns(leg.station, arrival.at_s);
  busy_[leg.station] += leg.service_s;
  const double most = leg.service_s / std::max(leg.service_s, leg.alone_s - leg.drain_s);
  turns_[leg.station].active.push_back({arrival.ticket, arrival.at_s, leg.service_s, most});
  transfers_[arrival.ticket].begin_s = arrival.at_s;
  share_turns(leg.station);
}

void Stations::advance_turns(std::size_t station, double at_s) {
  Turns& turns = turns_[station];
  for (Turns::Active& each : turns.active) each.left_s -= (at_s - turns.at_s) * each.rate;
  turns.at_s = at_s;
}

/// Shares the station's rate: equally, except that no leg gets more than it can use. Then the first leg's end is known,
/// unless another leg arrives before.
void Stations::share_turns(std::size_t station) {
  Turns& turns = turns_[station];
  ++turns.version;
  if (turns.active.empty()) return;
  std::vector<Turns::Active*> by_most;
  for (Turns::Active& each : turns.active) by_most.push_back(&each);
  std::sort(by_most.begin(), by_most.end(), [](const auto* a, const auto* b) { return a->most < b->most; });
  double left = 1;
  double first = std::numeric_limits<double>::infinity();
  for (std::size_t i = 0; i < by_most.size(); ++i) {
    by_most[i]->rate = std::min(by_most[i]->most, left / static_cast<double>(by_most.size() - i));
    left -= by_most[i]->rate;
    first = std::min(first, by_most[i]->left_s / by_most[i]->rate);
  }
  arrivals_.push({turns.at_s + std::max(0.0, first), order_++, kNone, station, turns.version});
}

void Stations::end_turns(const Arrival& event) {
  Turns& turns = turns_[event.station];
  if (event.version != turns.version) return;  // another leg arrived meanwhile
  advance_turns(event.station, event.at_s);
  constexpr double kNothing = 1e-12;
  std::vector<Ticket> ended;
  std::erase_if(turns.active, [&](const Turns::Active& each) {
    if (each.left_s > kNothing) return false;
    ended.push_back(each.ticket);
    return true;
  });
  share_turns(event.station);
  for (const Ticket ticket : ended) {
    Transfer& transfer = transfers_[ticket];
    const Leg& leg = transfer.legs[transfer.next - 1];
    transfer.end_s = std::max(event.at_s + leg.drain_s, transfer.end_s + leg.tail_s);
    leave(ticket);
  }
}

}  // namespace psring::bench
