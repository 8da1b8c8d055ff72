#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

#include <psring/bench/predict/stations.h>
#include <psring/common/base/text/error.h>

namespace psring::bench {

void Stations::ArrivalQueue::push(const Arrival& arrival) {
  if (empty()) list_.clear(), begin_ = 0;
  list_.push_back(arrival);
  for (std::size_t i = list_.size() - 1; i > begin_ && list_[i] < list_[i - 1]; --i) std::swap(list_[i], list_[i - 1]);
}

Stations::Arrival Stations::ArrivalQueue::pop() { return list_[begin_++]; }

Stations::Ticket Stations::submit(const Moments& ready, Legs legs) {
  check(!legs->empty(), "a transfer without legs");
  const Ticket ticket = transfers_.size();
  for (std::size_t lane = 0; lane < lanes_; ++lane) {
    transfers_.push_back({.legs = legs, .begin_s = ready[lane], .end_s = ready[lane]});
    Transfer& part = transfers_.back();
    if (lanes_ > 1) part.got.resize(legs->size());
    part.group = legs->front().group;
    if (part.group > 0) part.number = groups_[lane][part.group].transfers++;
  }
  for (std::size_t lane = 0; lane < lanes_; ++lane) {
    call(lane, ready[lane]);
    arrive(ticket + lane, {.at_s = ready[lane], .order = order_++});
  }
  return ticket;
}

void Stations::call(std::size_t lane, double at_s) {
  calls_[lane].push_back(at_s);
  for (auto& [part, arrival] : std::exchange(held_[lane], {}))
    arrive(part, {.at_s = std::max(arrival.at_s, at_s), .order = order_++});
}

/// A part has arrivals of one kind at a time: that of its next leg, or those of the present leg's frames.
void Stations::arrive(Ticket part, const Arrival& arrival) {
  ArrivalQueue& arrivals = transfers_[part].arrivals;
  const bool is_other = part != served_ && arrivals.empty();
  arrivals.push(arrival);
  if (is_other) others_.push({arrival, part});
}

bool Stations::done(Ticket ticket) const {
  for (std::size_t lane = 0; lane < lanes_; ++lane)
    if (!transfers_[ticket + lane].done) return false;
  return true;
}

Moments Stations::end_of(Ticket ticket, const Moments& since) {
  for (std::size_t lane = 0; lane < lanes_; ++lane) {
    if (!transfers_[ticket + lane].done) awaited_[lane] = ticket + lane;
    call(lane, since[lane]);
  }
  while (!done(ticket)) serve_first(std::numeric_limits<double>::infinity());
  Moments ends(0, lanes_);
  for (std::size_t lane = 0; lane < lanes_; ++lane) ends[lane] = transfers_[ticket + lane].end_s;
  return ends;
}

bool Stations::done_by(Ticket ticket, const Moments& now) {
  for (std::size_t lane = 0; lane < lanes_; ++lane) call(lane, now[lane]);
  const double last = now.last();
  while (!done(ticket) && next_s() <= last) serve_first(last);
  for (std::size_t lane = 0; lane < lanes_; ++lane)
    if (!transfers_[ticket + lane].done || transfers_[ticket + lane].end_s > now[lane]) return false;
  return true;
}

double Stations::next_s() const {
  double next = std::numeric_limits<double>::infinity();
  if (!others_.empty()) next = others_.top().arrival.at_s;
  return incoming_.empty() ? next : std::min(next, incoming_.top().at_s);
}

void Stations::serve_first(double until_s) {
  if (!incoming_.empty() && (others_.empty() || incoming_.top().at_s <= others_.top().arrival.at_s)) {
    const Incoming frame = incoming_.top();
    incoming_.pop();
    return take(frame);
  }
  served_ = others_.top().ticket;
  others_.pop();
  while (!transfers_[served_].arrivals.empty()) {
    const Next next{transfers_[served_].arrivals.front(), served_};
    if (next.arrival.at_s > until_s || (!others_.empty() && next > others_.top()) ||
        (!incoming_.empty() && incoming_.top().at_s <= next.arrival.at_s)) {
      others_.push(next);
      break;
    }
    transfers_[served_].arrivals.pop();
    serve(served_, next.arrival);
  }
  served_ = kNone;
}

void Stations::serve(Ticket part, const Arrival& arrival) {
  if (arrival.frame != kNoFrame) return serve_frame(part, arrival.at_s, arrival.frame);
  if (!arrival.waits_for_call) return enter(part, arrival.at_s);
  // A leg that could begin before the last call begins with one of the calls; later, if the worker waits.
  const std::size_t lane = lane_of(part);
  const std::vector<double>& calls = calls_[lane];
  if (arrival.at_s < calls.back())
    return arrive(part, {.at_s = *std::lower_bound(calls.begin(), calls.end(), arrival.at_s), .order = order_++});
  if (arrival.at_s == calls.back() || awaited_[lane] != kNone) return enter(part, arrival.at_s);
  held_[lane].emplace_back(part, arrival);
}

/// The next leg begins, if all transfers of the group that were called before have come as far.
void Stations::enter(Ticket part, double at_s) {
  const Transfer& transfer = transfers_[part];
  const Leg& leg = (*transfer.legs)[transfer.next];
  if (leg.group == 0 || leg.gate == Leg::Gate::none) return serve_leg(part, at_s);
  if (is_blocked(part, leg.gate, at_s)) return;
  const Leg::Gate gate = leg.gate;
  serve_leg(part, at_s);
  open_next(part, gate, at_s);
}

Stations::Gate& Stations::gate_of(Ticket part, Leg::Gate gate) {
  return groups_[lane_of(part)][transfers_[part].group].gates[static_cast<std::size_t>(gate)];
}

bool Stations::is_blocked(Ticket part, Leg::Gate gate, double at_s) {
  const Transfer& transfer = transfers_[part];
  Gate& at = gate_of(part, gate);
  if (at.next == transfer.number) {
    ++at.next;
    return false;
  }
  at.blocked[transfer.number] = {part, at_s};
  return true;
}

/// The part has entered: the next one does if it is there.
void Stations::open_next(Ticket part, Leg::Gate gate, double at_s) {
  Gate& at = gate_of(part, gate);
  const auto found = at.blocked.find(at.next);
  if (found == at.blocked.end()) return;
  const Blocked blocked = found->second;
  at.blocked.erase(found);
  const double entered_s = std::max(at_s, blocked.at_s);
  if (gate != Leg::Gate::end) return arrive(blocked.part, {.at_s = entered_s, .order = order_++});
  transfers_[blocked.part].end_s = std::max(transfers_[blocked.part].end_s, entered_s);
  ++at.next;
  end(blocked.part);
}

double Stations::occupy(std::size_t station, double at_s, double service_s) {
  if (!(service_s > 0)) return at_s;
  const double begin = std::max(at_s, free_[station]);
  free_[station] = begin + service_s;
  busy_[station] += service_s;
  return begin;
}

void Stations::serve_leg(Ticket part, double at_s) {
  Transfer& transfer = transfers_[part];
  const Leg& leg = (*transfer.legs)[transfer.next++];
  if (lanes_ > 1 && leg.lanes.kind != LaneGroup::Kind::between) return exchange(part, leg, at_s);
  if (leg.frames) {
    transfer.begin_s = at_s;
    if (lanes_ > 1 && !leg.lanes.owns(lane_of(part))) {
      transfer.end_s = std::max(transfer.end_s, at_s);
      return leave(part);
    }
    transfer.frames_left = leg.frames->frames.size();
    const std::size_t at_once = leg.frames->at_once;
    for (std::size_t frame = 0; frame < at_once; ++frame) serve_frame(part, at_s, frame);
    return;
  }
  const double begin = occupy(leg.station, at_s, leg.service_s);
  transfer.begin_s = begin;
  transfer.end_s = std::max({begin + leg.service_s + leg.drain_s, at_s + leg.alone_s, transfer.end_s});
  leave(part);
}

void Stations::serve_frame(Ticket part, double at_s, std::size_t number) {
  Transfer& transfer = transfers_[part];
  const Leg& leg = (*transfer.legs)[transfer.next - 1];
  const TimedFrame& frame = leg.frames->frames[number];
  const double arrived = occupy(leg.station, at_s, frame.service_s) + frame.service_s;
  const double received = arrived + wait_for_work(leg, arrived) + frame.latency_s;
  for (std::size_t next = frame.first; next < frame.first + frame.count; ++next)
    arrive(part, {.at_s = received, .order = order_++, .frame = next});
  transfer.end_s = std::max(transfer.end_s, received);
  if (--transfer.frames_left > 0) return;
  transfer.end_s = std::max(transfer.begin_s, transfer.end_s + leg.frames->later_s);
  leave(part);
}

double Stations::wait_for_work(const Leg& leg, double at_s) {
  const double work_s = leg.work.service_s / static_cast<double>(leg.frames->frames.size());
  return occupy(leg.work.station, at_s, work_s) - at_s + leg.work.waits * work_s;
}

/// The worker's frames leave to the others of its group on the host, to the next one first.
void Stations::exchange(Ticket part, const Leg& leg, double at_s) {
  const std::size_t lane = lane_of(part);
  const std::size_t number = transfers_[part].next - 1;
  const LaneGroup& group = leg.lanes;
  transfers_[part].begin_s = transfers_[part].left_s = at_s;
  const std::size_t others = group.size - 1;
  const std::size_t each = leg.frames->frames.size() / others;
  for (std::size_t other = 1; other <= others; ++other) {
    const std::size_t to = group.further(lane, other);
    const bool sends = group.owns(group.kind == LaneGroup::Kind::reduces ? to : lane);
    for (std::size_t i = 0; sends && i < each; ++i) {
      const TimedFrame& frame = leg.frames->frames[(other - 1) * each + i];
      const double begin = std::max(at_s, out_[lane]);
      out_[lane] = begin + frame.service_s;
      transfers_[part].left_s = begin;
      busy_[leg.station] += frame.service_s / static_cast<double>(lanes_);
      incoming_.push({.at_s = begin + frame.latency_s,
                      .order = order_++,
                      .part = part - lane + to,
                      .leg = number,
                      .service_s = frame.service_s,
                      .later_s = leg.frames->later_s});
    }
  }
  end_exchange(part, number);
}

void Stations::take(const Incoming& frame) {
  double& in = in_[lane_of(frame.part)];
  in = std::max(in, frame.at_s) + frame.service_s;
  Got& got = transfers_[frame.part].got[frame.leg];
  ++got.frames;
  got.last_s = std::max(got.last_s, in + frame.later_s);
  end_exchange(frame.part, frame.leg);
}

/// The leg ends when the worker has begun it, has the frames of all others, and its own frames have left: until then
/// its vector must not change (ring::LinkOperation).
void Stations::end_exchange(Ticket part, std::size_t leg) {
  Transfer& transfer = transfers_[part];
  if (transfer.done || transfer.next != leg + 1) return;
  const LaneGroup& group = (*transfer.legs)[leg].lanes;
  const std::size_t each = (*transfer.legs)[leg].frames->frames.size() / (group.size - 1);
  const bool owns = group.owns(lane_of(part));
  const std::size_t senders =
      group.kind == LaneGroup::Kind::gathers ? group.owners - (owns ? 1 : 0) : (owns ? group.size - 1 : 0);
  if (transfer.got[leg].frames < senders * each) return;
  transfer.end_s = std::max({transfer.end_s, transfer.left_s, transfer.got[leg].last_s});
  leave(part);
}

void Stations::end(Ticket part) {
  Transfer& transfer = transfers_[part];
  transfer.done = true;
  transfer.legs = nullptr;
  transfer.arrivals.clear();
  Ticket& awaited = awaited_[lane_of(part)];
  if (awaited == part) awaited = kNone;
  if (transfer.group > 0) open_next(part, Leg::Gate::end, transfer.end_s);
}

void Stations::leave(Ticket part) {
  Transfer& transfer = transfers_[part];
  if (transfer.next == transfer.legs->size()) {
    if (transfer.group == 0 || !is_blocked(part, Leg::Gate::end, transfer.end_s)) end(part);
    return;
  }
  const Leg& next = (*transfer.legs)[transfer.next];
  arrive(part, {.at_s = next.streams ? transfer.begin_s : transfer.end_s,
                .order = order_++,
                .waits_for_call = next.waits_for_call});
}

}  // namespace psring::bench
