#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

#include <psring/bench/cost/stations.h>
#include <psring/common/base/error.h>

namespace psring::bench {

void Stations::ArrivalQueue::push(const Arrival& arrival) {
  if (empty()) list_.clear(), begin_ = 0;
  list_.push_back(arrival);
  for (std::size_t i = list_.size() - 1; i > begin_ && list_[i] < list_[i - 1]; --i) std::swap(list_[i], list_[i - 1]);
}

Stations::Arrival Stations::ArrivalQueue::pop() { return list_[begin_++]; }

Stations::Ticket Stations::submit(double ready_s, Legs legs, Ticket after) {
  check(!legs->empty(), "a transfer without legs");
  const Ticket ticket = transfers_.size();
  calls_.push_back(ready_s);
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
  const Arrival first{.at_s = transfer.end_s + transfer.legs->front().after_s, .order = order_++};
  transfer.arrivals.push(first);
  others_.push({first, ticket});
}

double Stations::end_of(Ticket ticket, double since_s) {
  calls_.push_back(since_s);
  waits_ = true;
  while (!transfers_[ticket].done) serve_first(std::numeric_limits<double>::infinity());
  waits_ = false;
  return transfers_[ticket].end_s;
}

bool Stations::done_by(Ticket ticket, double now_s) {
  calls_.push_back(now_s);
  while (!transfers_[ticket].done && !others_.empty() && others_.top().arrival.at_s <= now_s) serve_first(now_s);
  return transfers_[ticket].done && transfers_[ticket].end_s <= now_s;
}

void Stations::serve_first(double until_s) {
  const Ticket ticket = others_.top().ticket;
  others_.pop();
  ArrivalQueue& arrivals = transfers_[ticket].arrivals;
  while (!arrivals.empty()) {
    const Next next{arrivals.front(), ticket};
    if (next.arrival.at_s > until_s || (!others_.empty() && next > others_.top())) return others_.push(next);
    arrivals.pop();
    serve(ticket, next.arrival);
  }
}

void Stations::serve(Ticket ticket, const Arrival& arrival) {
  if (arrival.frame != kNoFrame) return serve_frame(ticket, arrival.at_s, arrival.frame);
  // The worker waits since its last call. A leg that could begin before begins with one of the calls until then.
  if (arrival.waits_for_call && arrival.at_s < calls_.back())
    return transfers_[ticket].arrivals.push(
        {.at_s = *std::lower_bound(calls_.begin(), calls_.end(), arrival.at_s), .order = order_++});
  serve_leg(ticket, arrival.at_s);
}

double Stations::occupy(std::size_t station, double at_s, double service_s) {
  if (!(service_s > 0)) return at_s;
  const double begin = std::max(at_s, free_[station]);
  free_[station] = begin + service_s;
  busy_[station] += service_s;
  return begin;
}

void Stations::serve_leg(Ticket ticket, double at_s) {
  Transfer& transfer = transfers_[ticket];
  const Leg& leg = (*transfer.legs)[transfer.next++];
  if (leg.frames) {
    transfer.begin_s = at_s;
    if (waits_ && others_.empty() && leg.frames->alone_s > 0) return serve_alone(ticket, leg, at_s);
    transfer.frames_left = leg.frames->frames.size();
    const std::size_t at_once = leg.frames->at_once;
    for (std::size_t frame = 0; frame < at_once; ++frame) serve_frame(ticket, at_s, frame);
    return;
  }
  const double begin = occupy(leg.station, at_s, leg.service_s);
  transfer.begin_s = begin;
  transfer.end_s = std::max({begin + leg.service_s + leg.drain_s, at_s + leg.alone_s, transfer.end_s + leg.tail_s});
  leave(ticket);
}

void Stations::serve_frame(Ticket ticket, double at_s, std::size_t number) {
  Transfer& transfer = transfers_[ticket];
  const Leg& leg = (*transfer.legs)[transfer.next - 1];
  const TimedFrame& frame = leg.frames->frames[number];
  const double received = occupy(leg.station, at_s, frame.service_s) + frame.service_s + frame.latency_s;
  for (std::size_t next = frame.first; next < frame.first + frame.count; ++next)
    transfer.arrivals.push({.at_s = received, .order = order_++, .frame = next});
  transfer.end_s = std::max(transfer.end_s, received);
  if (--transfer.frames_left > 0) return;
  transfer.end_s = std::max(transfer.begin_s, transfer.end_s + leg.frames->later_s);
  leave(ticket);
}

/// No other transfer is under way, and none comes: all frames leave as if nothing else used the card.
void Stations::serve_alone(Ticket ticket, const Leg& leg, double at_s) {
  Transfer& transfer = transfers_[ticket];
  const double begin = std::max(at_s, free_[leg.station]);
  free_[leg.station] = begin + leg.frames->carried_s;
  busy_[leg.station] += leg.frames->service_s;
  transfer.end_s = std::max(transfer.end_s, begin + leg.frames->alone_s);
  transfer.end_s = std::max(transfer.begin_s, transfer.end_s + leg.frames->later_s);
  leave(ticket);
}

void Stations::leave(Ticket ticket) {
  Transfer& transfer = transfers_[ticket];
  if (transfer.next == transfer.legs->size()) {
    transfer.done = true;
    transfer.legs = nullptr;
    transfer.arrivals.clear();
    for (const Ticket follower : std::exchange(transfer.followers, {})) {
      transfers_[follower].end_s = std::max(transfers_[follower].end_s, transfers_[ticket].end_s);
      start(follower);
    }
    return;
  }
  const Leg& next = (*transfer.legs)[transfer.next];
  transfer.arrivals.push({.at_s = (next.streams ? transfer.begin_s : transfer.end_s) + next.after_s,
                          .order = order_++,
                          .waits_for_call = next.waits_for_call});
}

}  // namespace psring::bench
