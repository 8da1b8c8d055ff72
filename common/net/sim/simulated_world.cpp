#include <algorithm>
#include <cstring>
#include <map>
#include <utility>
#include <vector>

#include <psring/common/base/text/error.h>
#include <psring/common/net/sim/simulated_world.h>

namespace psring::net {
namespace {

constexpr Nanoseconds kLookTime = std::chrono::microseconds(1);  ///< the shortest wait: a look into an empty inbox

/// The first place of each place's group.
std::vector<std::size_t> first_places(const std::vector<std::size_t>& group_of, std::size_t places) {
  std::map<std::size_t, std::size_t> first;  // by group
  std::vector<std::size_t> list;
  for (std::size_t place = 0; place < places; ++place)
    list.push_back(place < group_of.size() ? first.try_emplace(group_of[place], place).first->second : place);
  return list;
}

}  // namespace

SimulatedWorld::SimulatedWorld(const SimulatedNetwork::Options& options)
    : options_(options),
      inner_of_(first_places(options.processes, options.peers.size())),
      card_of_(first_places(options.hosts.empty() ? options.processes : options.hosts, options.peers.size())),
      draws_(options.seed),
      wire_(options.trouble, draws_, blocks_) {
  for (const Peer peer : options_.peers) peers_.emplace_back(peer, options_.link, options_.within);
  for (const SimulatedNetwork::Death& death : options_.deaths)
    events_.add({.time = Moment{} + death.at,
                 .kind = SimulatedEvent::Kind::dies,
                 .to = death.place,
                 .returns_after = death.returns_after});
}

LinkShaper& SimulatedWorld::link(std::size_t place, std::size_t other) {
  const std::vector<std::size_t>& hosts = options_.hosts;
  if (!hosts.empty() && hosts[place] == hosts[other]) return peers_[inner_of_[place]].inner;
  return peers_[card_of_[place]].card;
}

bool SimulatedWorld::send(std::size_t from, std::size_t to, const FrameHeader& header,
                          std::span<const std::byte> payload) {
  if (peers_[from].dead) return false;
  auto message = std::make_shared<Message>();
  if (!payload.empty()) {
    const std::shared_ptr<std::byte> block = blocks_->take(payload.size());
    std::memcpy(block.get(), payload.data(), payload.size());
    message->payload = {block.get(), payload.size()};
    message->holder = block;
  }
  // The header passes the codec, so a header that any other transport would refuse fails here, too.
  message->header = decode(encode(header));
  const bool local = !options_.processes.empty() && options_.processes[from] == options_.processes[to];
  const Moment departure = local ? now_ : link(from, to).depart(kHeaderBytes + payload.size(), now_);
  if (options_.listener != nullptr) options_.listener->on_send(from, to, message->header, now_, departure);
  if (!local) peers_[from].waiting_bytes[to] += payload.size();
  if (local && options_.link_bytes > 0) buffer({from, to}).occupy(*message, 0);
  events_.add({.time = departure,
               .kind = local ? SimulatedEvent::Kind::arrives : SimulatedEvent::Kind::departs,
               .from = from,
               .to = to,
               .message = std::move(message),
               .from_life = peers_[from].incarnation,
               .to_life = peers_[to].incarnation});
  return true;
}

std::size_t SimulatedWorld::waiting_bytes(std::size_t from, std::size_t to) {
  const auto waiting = peers_[from].waiting_bytes.find(to);
  const std::size_t bytes = waiting == peers_[from].waiting_bytes.end() ? 0 : waiting->second;
  if (bytes > 0) peers_[from].wants_room = true;
  return bytes;
}

void SimulatedWorld::begin_wait(std::size_t place, Moment deadline) {
  peers_[place].begin_wait(std::max(deadline, now_ + kLookTime));
}

bool SimulatedWorld::begin_sleep(std::size_t place, Moment moment) {
  if (moment <= now_) return false;
  peers_[place].begin_sleep(moment);
  return true;
}

std::optional<Message> SimulatedWorld::take(std::size_t place) {
  SimulatedPeer& self = peers_[place];
  if (self.dead) fail(ErrorKind::peer_lost, "{} has died", to_string(self.peer));
  if (self.stuck) fail(ErrorKind::timeout, "{}", deadlock_);
  if (!self.inbox.empty()) {
    Message message = std::move(self.inbox.front());
    self.inbox.pop_front();
    if (options_.link_bytes > 0 && !options_.lends_buffers) SimulatedBuffer::release(message);
    return message;
  }
  if (!self.lost.empty()) {
    const std::size_t peer = self.lost.front();
    self.lost.pop_front();
    fail(ErrorKind::peer_lost, "{}: the link is closed", to_string(peers_[peer].peer));
  }
  self.woken = false;
  return std::nullopt;
}

SimulatedWorld::End SimulatedWorld::end(std::size_t place) {
  SimulatedPeer& self = peers_[place];
  last_progress_ = now_;
  if (!self.dead || !self.returns || self.stuck) {
    self.ended = true;
    free_links_of(place);
    return self.dead ? End::died : End::done;
  }
  self.away = true;
  events_.add({.time = std::max(now_, *self.returns), .kind = SimulatedEvent::Kind::returns, .to = place});
  return End::again;
}

std::optional<std::size_t> SimulatedWorld::next_to_run() {
  for (;;) {
    leave_blocked();
    if (const std::optional<std::size_t> next = choose()) return next;
    if (std::all_of(peers_.begin(), peers_.end(), [](const SimulatedPeer& peer) { return peer.ended; }))
      return std::nullopt;
    if (!advance()) find_deadlock();
  }
}

/// Draws one of the peers that can run.
std::optional<std::size_t> SimulatedWorld::choose() {
  std::vector<std::size_t> able;
  for (std::size_t place = 0; place < peers_.size(); ++place)
    if (peers_[place].can_run()) able.push_back(place);
  if (able.empty()) return std::nullopt;
  return able.size() == 1 ? able.front() : able[draws_.bits() % able.size()];
}

/// Moves the time to the next event or deadline. Returns false if there is none within the patience and the limit.
bool SimulatedWorld::advance() {
  Moment deadline = kNever;
  for (const SimulatedPeer& peer : peers_)
    if (!peer.ended && !peer.away) deadline = std::min(deadline, peer.deadline);
  const Moment next = std::min(deadline, events_.next_time());
  if (next - Moment{} > options_.limit) return false;
  if (!events_.empty() && events_.next_time() <= deadline) {
    const SimulatedEvent event = events_.take();
    now_ = std::max(now_, event.time);
    happen(event);
    return true;
  }
  const bool computing =
      std::any_of(peers_.begin(), peers_.end(), [](const SimulatedPeer& peer) { return peer.sleeps; });
  if (deadline == kNever || (deadline > last_progress_ + options_.patience && !computing)) return false;
  now_ = std::max(now_, deadline);
  for (SimulatedPeer& peer : peers_) peer.expire(deadline);
  return true;
}

void SimulatedWorld::happen(const SimulatedEvent& event) {
  SimulatedPeer& to = peers_[event.to];
  switch (event.kind) {
    case SimulatedEvent::Kind::departs:
      if (!peers_[event.from].dead && peers_[event.from].incarnation == event.from_life) leave(event);
      return;
    case SimulatedEvent::Kind::arrives:
      if (to.away || to.incarnation != event.to_life || peers_[event.from].incarnation != event.from_life) return;
      if ((event.message->header.flags & FrameHeader::kProbe) == 0) last_progress_ = now_;
      if (options_.listener != nullptr)
        options_.listener->on_arrival(event.from, event.to, event.message->header, now_);
      return to.inbox.push_back(std::move(*event.message));
    case SimulatedEvent::Kind::dies:
      return kill(event.to, event.returns_after);
    case SimulatedEvent::Kind::returns:
      last_progress_ = now_;
      if (options_.listener != nullptr) options_.listener->on_return(event.to, now_);
      return to.come_back();
    case SimulatedEvent::Kind::is_lost:
      last_progress_ = now_;
      if (to.incarnation == event.to_life) to.lost.push_back(event.from);
      return;
  }
}

/// The frame has left the sender's card, if the link's buffer has room for it.
void SimulatedWorld::leave(const SimulatedEvent& departure) {
  if (options_.link_bytes > 0 && !peers_[departure.to].ended) {
    SimulatedBuffer& room = buffer({departure.from, departure.to});
    const std::size_t bytes = kHeaderBytes + departure.message->payload.size();
    if (!room.waiting.empty() || !room.fits(bytes, options_.link_bytes)) return room.waiting.push_back(departure);
  }
  depart(departure);
}

/// Lets frames leave for which there is room now. Frames of a sender that has died meanwhile are dropped.
void SimulatedWorld::leave_blocked() {
  while (!freed_->empty()) {
    SimulatedBuffer& room = buffer(freed_->extract(freed_->begin()).value());
    while (!room.waiting.empty()) {
      const SimulatedEvent departure = room.waiting.front();
      const SimulatedPeer& from = peers_[departure.from];
      const bool sent = !from.dead && from.incarnation == departure.from_life;
      const std::size_t bytes = kHeaderBytes + departure.message->payload.size();
      if (sent && !peers_[departure.to].ended && !room.fits(bytes, options_.link_bytes)) break;
      room.waiting.pop_front();
      if (sent) depart(departure);
    }
  }
}

/// Has `leave_blocked` look at the links of a peer that is gone.
void SimulatedWorld::free_links_of(std::size_t place) {
  for (const auto& [link, room] : buffers_)
    if ((link.first == place || link.second == place) && !room.waiting.empty()) freed_->insert(link);
}

void SimulatedWorld::depart(const SimulatedEvent& departure) {
  SimulatedPeer& from = peers_[departure.from];
  from.waiting_bytes[departure.to] -= departure.message->payload.size();
  if (std::exchange(from.wants_room, false)) from.woken = true;
  begin_travel(departure);
}

/// The frame leaves the sender's card, and travels to the receiver's card.
void SimulatedWorld::begin_travel(const SimulatedEvent& departure) {
  const std::size_t bytes = kHeaderBytes + departure.message->payload.size();
  const Moment time = link(departure.to, departure.from).arrive(bytes, now_);
  wire_.carry(*departure.message, [&](Nanoseconds extra_delay, std::shared_ptr<Message> message) {
    if (options_.link_bytes > 0) buffer({departure.from, departure.to}).occupy(*message, bytes);
    SimulatedEvent arrival = departure;
    arrival.kind = SimulatedEvent::Kind::arrives;
    arrival.time = time + extra_delay;
    arrival.message = std::move(message);
    events_.add(std::move(arrival));
  });
}

void SimulatedWorld::kill(std::size_t place, std::optional<Nanoseconds> returns_after) {
  SimulatedPeer& self = peers_[place];
  last_progress_ = now_;
  if (self.ended || self.away || self.dead) return;
  self.dead = true;
  free_links_of(place);
  if (options_.listener != nullptr) options_.listener->on_death(place, now_);
  self.returns.reset();
  if (returns_after) self.returns = now_ + *returns_after;
  for (std::size_t other = 0; other < peers_.size(); ++other)
    if (other != place)
      events_.add({.time = now_ + options_.link.delay,
                   .kind = SimulatedEvent::Kind::is_lost,
                   .from = place,
                   .to = other,
                   .to_life = peers_[other].incarnation});
}

void SimulatedWorld::find_deadlock() {
  const bool only_workers = std::all_of(peers_.begin(), peers_.end(),
                                        [](const SimulatedPeer& peer) { return peer.peer.role == Role::worker; });
  std::string waiting;
  std::string gone;
  for (SimulatedPeer& peer : peers_) {
    std::string& list = peer.ended ? gone : waiting;
    list += (list.empty() ? "" : ", ") + (only_workers ? std::to_string(peer.peer.rank) : to_string(peer.peer));
    peer.stuck = !peer.ended;
  }
  deadlock_ = fmt::format("deadlock at {:.6f} s: {}{} wait{}", seconds(now_ - Moment{}), only_workers ? "workers " : "",
                          waiting, gone.empty() ? "" : "; ended: " + gone);
}

}  // namespace psring::net
