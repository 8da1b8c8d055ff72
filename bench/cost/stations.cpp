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
  arrive(ticket, transfer.end_s + transfer.legs.front().after_s);
}

double Stations::end_of(Ticket ticket, double since_s) {
  calls_.push_back(since_s);
  while (!transfers_[ticket].done) serve_first();
  return transfers_[ticket].end_s;
}

bool Stations::done_by(Ticket ticket, double now_s) {
  calls_.push_back(now_s);
  while (!transfers_[ticket].done && !arrivals_.empty() && arrivals_.top().at_s <= now_s) serve_first();
  return transfers_[ticket].done && transfers_[ticket].end_s <= now_s;
}

void Stations::serve_first() {
  const Arrival arrival = arrivals_.top();
  arrivals_.pop();
  // The worker waits since its last call. A leg that could begin before begins with one of the calls until then.
  if (arrival.waits_for_call && arrival.at_s < calls_.back())
    return arrive(arrival.ticket, *std::lower_bound(calls_.begin(), calls_.end(), arrival.at_s));
  arrival.frame == kNoFrame ? serve_leg(arrival) : serve_frame(arrival);
}

double Stations::occupy(std::size_t station, double at_s, double service_s) {
  if (!(service_s > 0)) return at_s;
  const double begin = std::max(at_s, free_[station]);
  free_[station] = begin + service_s;
  busy_[station] += service_s;
  return begin;
}

void Stations::serve_leg(const Arrival& arrival) {
  Transfer& transfer = transfers_[arrival.ticket];
  const Leg& leg = transfer.legs[transfer.next++];
  if (leg.frames) {
    transfer.begin_s = arrival.at_s;
    transfer.frames_left = leg.frames->frames.size();
    const std::size_t at_once = leg.frames->at_once;
    for (std::size_t frame = 0; frame < at_once; ++frame)
      serve_frame({.at_s = arrival.at_s, .ticket = arrival.ticket, .frame = frame});
    return;
  }
  const double begin = occupy(leg.station, arrival.at_s, leg.service_s);
  transfer.begin_s = begin;
  transfer.end_s =
      std::max({begin + leg.service_s + leg.drain_s, arrival.at_s + leg.alone_s, transfer.end_s + leg.tail_s});
  leave(arrival.ticket);
}

void Stations::serve_frame(const Arrival& arrival) {
  Transfer& transfer = transfers_[arrival.ticket];
  const Leg& leg = transfer.legs[transfer.next - 1];
  const TimedFrame& frame = leg.frames->frames[arrival.frame];
  const double received = occupy(leg.station, arrival.at_s, frame.service_s) + frame.service_s + frame.latency_s;
  for (std::size_t next = frame.first; next < frame.first + frame.count; ++next) arrive(arrival.ticket, received, next);
  transfer.end_s = std::max(transfer.end_s, received);
  if (--transfer.frames_left > 0) return;
  transfer.end_s = std::max(transfer.begin_s, transfer.end_s + leg.frames->later_s);
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
  arrivals_.push({.at_s = (next.streams ? transfer.begin_s : transfer.end_s) + next.after_s,
                  .order = order_++,
                  .ticket = ticket,
                  .waits_for_call = next.waits_for_call});
}

}  // namespace psring::bench
