#include <algorithm>
#include <utility>

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
  Transfer& transfer = transfers_[arrival.ticket];
  const Leg& leg = transfer.legs[transfer.next++];
  const double begin = leg.service_s > 0 ? std::max(arrival.at_s, free_[leg.station]) : arrival.at_s;
  if (leg.service_s > 0) {
    free_[leg.station] = begin + leg.service_s;
    busy_[leg.station] += leg.service_s;
  }
  transfer.begin_s = begin;
  transfer.end_s =
      std::max({begin + leg.service_s + leg.drain_s, arrival.at_s + leg.alone_s, transfer.end_s + leg.tail_s});
  if (transfer.next == transfer.legs.size()) {
    transfer.done = true;
    transfer.legs = {};
    for (const Ticket follower : std::exchange(transfer.followers, {})) {
      transfers_[follower].end_s = std::max(transfers_[follower].end_s, transfer.end_s);
      start(follower);
    }
    return;
  }
  const Leg& next = transfer.legs[transfer.next];
  arrive(arrival.ticket, (next.streams ? transfer.begin_s : transfer.end_s) + next.after_s);
}

}  // namespace psring::bench
