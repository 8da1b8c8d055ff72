#include <algorithm>
#include <utility>
#include <vector>

#include <psring/bench/predict/stations.h>
#include <psring/common/base/text/error.h>

namespace psring::bench {

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
    add({.at_s = ready[lane], .part = ticket + lane});
  }
  return ticket;
}

void Stations::call(std::size_t lane, double at_s) {
  calls_[lane].push_back(at_s);
  for (const Event& held : std::exchange(held_[lane], {})) add({.at_s = std::max(held.at_s, at_s), .part = held.part});
}

void Stations::add(Event event) {
  event.order = order_++;
  events_.push(event);
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
  while (!done(ticket)) serve_first();
  Moments ends(0, lanes_);
  for (std::size_t lane = 0; lane < lanes_; ++lane) ends[lane] = transfers_[ticket + lane].end_s;
  return ends;
}

bool Stations::done_by(Ticket ticket, const Moments& now) {
  for (std::size_t lane = 0; lane < lanes_; ++lane) call(lane, now[lane]);
  while (!done(ticket) && !events_.empty() && events_.top().at_s <= now.last()) serve_first();
  for (std::size_t lane = 0; lane < lanes_; ++lane)
    if (!transfers_[ticket + lane].done || transfers_[ticket + lane].end_s > now[lane]) return false;
  return true;
}

void Stations::serve_first() {
  const Event event = events_.top();
  events_.pop();
  if (event.kind == Event::Kind::comes) return take(event);
  if (event.kind == Event::Kind::leaves) return serve_frame(event.part, event.at_s, event.frame);
  if (event.kind == Event::Kind::begins) return enter(event);
  // A leg that could begin before the last call begins with one of the calls; later, if the worker waits.
  const std::size_t lane = lane_of(event.part);
  const std::vector<double>& calls = calls_[lane];
  if (event.at_s < calls.back())
    return add({.at_s = *std::lower_bound(calls.begin(), calls.end(), event.at_s), .part = event.part});
  if (event.at_s == calls.back() || awaited_[lane] != kNone) return enter(event);
  held_[lane].push_back(event);
}

/// The next leg begins, if all transfers of the group that were called before have come as far.
void Stations::enter(const Event& event) {
  const Transfer& transfer = transfers_[event.part];
  const Leg::Gate gate = (*transfer.legs)[transfer.next].gate;
  if (gate == Leg::Gate::none) return serve_leg(event.part, event.at_s);
  if (is_blocked(event, gate)) return;
  serve_leg(event.part, event.at_s);
  open_next(event.part, gate, event.at_s);
}

Stations::Gate& Stations::gate_of(Ticket part, Leg::Gate gate) {
  return groups_[lane_of(part)][transfers_[part].group].gates[static_cast<std::size_t>(gate)];
}

bool Stations::is_blocked(const Event& event, Leg::Gate gate) {
  const std::size_t number = transfers_[event.part].number;
  Gate& at = gate_of(event.part, gate);
  if (at.next != number) return at.blocked.emplace(number, event), true;
  ++at.next;
  return false;
}

/// The part has entered: the next one does if it is there.
void Stations::open_next(Ticket part, Leg::Gate gate, double at_s) {
  Gate& at = gate_of(part, gate);
  const auto found = at.blocked.extract(at.next);
  if (found.empty()) return;
  const Event& blocked = found.mapped();
  const double entered_s = std::max(at_s, blocked.at_s);
  if (gate != Leg::Gate::end) return add({.at_s = entered_s, .part = blocked.part});
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
    add({.at_s = received, .part = part, .kind = Event::Kind::leaves, .frame = next});
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
    for (std::size_t i = (other - 1) * each; sends && i < other * each; ++i) {
      const TimedFrame& frame = leg.frames->frames[i];
      const double begin = std::max(at_s, out_[lane]);
      out_[lane] = begin + frame.service_s;
      transfers_[part].left_s = begin;
      busy_[leg.station] += frame.service_s / static_cast<double>(lanes_);
      add({.at_s = begin + frame.latency_s,
           .part = part - lane + to,
           .kind = Event::Kind::comes,
           .leg = number,
           .frame = i});
    }
  }
  end_exchange(part, number);
}

void Stations::take(const Event& event) {
  Transfer& transfer = transfers_[event.part];
  const TimedFrames& frames = *(*transfer.legs)[event.leg].frames;
  double& in = in_[lane_of(event.part)];
  in = std::max(in, event.at_s) + frames.frames[event.frame].service_s;
  Got& got = transfer.got[event.leg];
  ++got.frames;
  got.last_s = std::max(got.last_s, in + frames.later_s);
  end_exchange(event.part, event.leg);
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
  Ticket& awaited = awaited_[lane_of(part)];
  if (awaited == part) awaited = kNone;
  if (transfer.group > 0) open_next(part, Leg::Gate::end, transfer.end_s);
}

void Stations::leave(Ticket part) {
  Transfer& transfer = transfers_[part];
  if (transfer.next == transfer.legs->size()) {
    if (transfer.group == 0 || !is_blocked({.at_s = transfer.end_s, .part = part}, Leg::Gate::end)) end(part);
    return;
  }
  const Leg& next = (*transfer.legs)[transfer.next];
  add({.at_s = next.streams ? transfer.begin_s : transfer.end_s,
       .part = part,
       .kind = next.waits_for_call ? Event::Kind::waits : Event::Kind::begins});
}

}  // namespace psring::bench
