#include <algorithm>
#include <cstring>
#include <deque>
#include <exception>
#include <mutex>
#include <queue>
#include <semaphore>
#include <string>
#include <thread>
#include <tuple>
#include <utility>

#include <psring/common/base/error.h>
#include <psring/common/base/rng.h>
#include <psring/common/net/block_pool.h>
#include <psring/common/net/sim/simulated.h>

namespace psring::net {
namespace {

constexpr Nanoseconds kLookTime = std::chrono::microseconds(1);

/// Something that happens at a moment.
struct Event {
  enum class Kind : std::uint8_t { departs, arrives, dies, returns, is_lost };

  Moment time;
  std::uint32_t tie = 0;  ///< of the seed: decides among those of one moment
  std::uint64_t order = 0;
  Kind kind = Kind::departs;
  std::size_t from = 0;
  std::size_t to = 0;
  std::shared_ptr<Message> message = nullptr;  ///< shared because a priority queue only hands out copies
  std::uint32_t from_life = 0;                 ///< incarnations of both
  std::uint32_t to_life = 0;
  std::optional<Nanoseconds> returns_after{};  ///< of `dies`

  friend bool operator>(const Event& a, const Event& b) {
    return std::tie(a.time, a.tie, a.order) > std::tie(b.time, b.tie, b.order);
  }
};

/// As one peer has it. What it waits for comes in `inbox`, `lost` or one of the flags.
struct Participant {
  Participant(Peer who, const LinkSpec& link) : peer(who), card(link) {}

  bool has_news() const { return !inbox.empty() || !lost.empty() || woken || dead || stuck; }
  bool able() const {
    return !ended && (!away || stuck) && (!waits || expired || (sleeps ? dead || stuck : has_news()));
  }

  const Peer peer;
  LinkShaper card;
  ByteLedger ledger;
  std::deque<Message> inbox;
  std::deque<std::size_t> lost;  ///< peers that it was not told of
  Moment deadline = kNever;
  bool waits = false;
  bool sleeps = false;  ///< then no message ends the wait
  bool expired = false;
  bool woken = false;
  bool dead = false;
  std::optional<Moment> returns;  ///< where it is dead, when it comes back
  bool away = false;              ///< it has ended, and will
  std::uint32_t incarnation = 0;
  bool ended = false;
  bool stuck = false;             ///< the network has found a deadlock
  std::binary_semaphore turn{0};  ///< it may go on
};

}  // namespace

/// The network, and who runs. All of it is guarded by the mutex, but is only ever used by the rank that runs.
class SimulatedNetwork::State {
 public:
  explicit State(const Options& options) : options_(options), rng_({options.seed, Purpose::network}) {
    for (const Peer peer : options_.peers) places_.emplace_back(peer, options_.link);
    for (const Death& death : options_.deaths)
      add({.time = Moment{} + death.at,
           .kind = Event::Kind::dies,
           .to = death.place,
           .returns_after = death.returns_after});
  }

  Moment now() const {
    const std::scoped_lock lock(mutex_);
    return now_;
  }
  const Clock& clock() const { return clock_; }
  const Options& options() const { return options_; }
  /// Of the rank that runs.
  void sleep_until(Moment moment);
  ByteLedger& ledger(std::size_t place) { return places_[place].ledger; }
  bool send(std::size_t from, std::size_t to, FrameHeader header, std::span<const std::byte> payload);
  std::optional<Message> receive(std::size_t place, Moment deadline);
  void wake(std::size_t place) {
    const std::scoped_lock lock(mutex_);
    places_[place].woken = true;
  }

  void start() {
    const std::scoped_lock lock(mutex_);
    check(!running_, "a simulated network runs once");
    pass_on();
    places_[*running_].turn.release();
  }
  void await_turn(std::size_t place) { places_[place].turn.acquire(); }
  enum class End : std::uint8_t { done, died, again };
  /// Waits for its return, where there is one.
  End end(std::size_t place);
  std::uint32_t incarnation(std::size_t place) const {
    const std::scoped_lock lock(mutex_);
    return places_[place].incarnation;
  }
  bool dead(std::size_t place) const {
    const std::scoped_lock lock(mutex_);
    return places_[place].dead;
  }
  void kill(std::size_t place, std::optional<Nanoseconds> returns_after) {
    const std::scoped_lock lock(mutex_);
    die({.time = now_, .to = place, .returns_after = returns_after});
  }

 private:
  class OwnClock final : public Clock {
   public:
    explicit OwnClock(State& state) : state_(state) {}
    Moment now() const override { return state_.now(); }
    void sleep_until(Moment moment) const override { state_.sleep_until(moment); }

   private:
    State& state_;
  };

  void add(Event event);
  bool chance(double probability) { return probability > 0 && rng_.uniform(draws_++) < probability; }
  void travel(const Event& departure);
  void arrive(const Event& departure, Moment time);
  std::shared_ptr<Message> changed(const Message& message);
  void die(const Event& event);
  void pass_on();
  void wait_turn(std::unique_lock<std::mutex>& lock, Participant& self);
  std::optional<std::size_t> choose();
  bool advance();
  void happen(const Event& event);
  void expire(Moment time);
  void get_stuck();
  std::optional<Message> take(Participant& self);

  const OwnClock clock_{*this};
  const Options options_;
  const CounterRng rng_;
  const std::shared_ptr<BlockPool> blocks_ = std::make_shared<BlockPool>();
  mutable std::mutex mutex_;
  std::deque<Participant> places_;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  Moment now_{};
  Moment heard_{};  ///< when something happened last that is no deadline and no probe
  std::uint64_t draws_ = 0;
  std::uint64_t order_ = 0;
  std::optional<std::size_t> running_;
  std::string deadlock_;
};

void SimulatedNetwork::State::add(Event event) {
  event.tie = rng_.bits(draws_++);
  event.order = order_++;
  events_.push(std::move(event));
}

SimulatedNetwork::State::End SimulatedNetwork::State::end(std::size_t place) {
  std::unique_lock lock(mutex_);
  Participant& self = places_[place];
  heard_ = now_;
  if (!self.dead || !self.returns || self.stuck) {
    self.ended = true;
    pass_on();
    if (running_) places_[*running_].turn.release();
    return self.dead ? End::died : End::done;
  }
  self.away = true;
  add({.time = std::max(now_, *self.returns), .kind = Event::Kind::returns, .to = place});
  wait_turn(lock, self);
  return End::again;
}

bool SimulatedNetwork::State::send(std::size_t from, std::size_t to, FrameHeader header,
                                   std::span<const std::byte> payload) {
  const std::scoped_lock lock(mutex_);
  if (places_[from].dead) return false;
  auto message = std::make_shared<Message>();
  if (!payload.empty()) {
    const std::shared_ptr<std::byte> block = blocks_->take(payload.size());
    std::memcpy(block.get(), payload.data(), payload.size());
    message->payload = {block.get(), payload.size()};
    message->holder = block;
  }
  // Through the codec, as over any other transport: what it would refuse fails here too.
  message->header = decode(encode(header));
  const Moment departure = places_[from].card.depart(kHeaderBytes + payload.size(), now_);
  add({.time = departure,
       .kind = Event::Kind::departs,
       .from = from,
       .to = to,
       .message = std::move(message),
       .from_life = places_[from].incarnation,
       .to_life = places_[to].incarnation});
  return true;
}

std::optional<Message> SimulatedNetwork::State::receive(std::size_t place, Moment deadline) {
  std::unique_lock lock(mutex_);
  Participant& self = places_[place];
  if (!self.has_news()) {
    self.deadline = std::max(deadline, now_ + kLookTime);
    self.waits = true;
    wait_turn(lock, self);
    self.waits = self.expired = false;
  }
  return take(self);
}

void SimulatedNetwork::State::sleep_until(Moment moment) {
  std::unique_lock lock(mutex_);
  check(running_.has_value(), "only a rank of the network sleeps");
  const std::size_t place = *running_;
  Participant& self = places_[place];
  self.deadline = moment;
  self.waits = self.sleeps = moment > now_;
  if (!self.sleeps) return;
  wait_turn(lock, self);
  self.waits = self.sleeps = self.expired = false;
}

std::optional<Message> SimulatedNetwork::State::take(Participant& self) {
  if (self.dead) fail(ErrorKind::peer_lost, "{} has died", to_string(self.peer));
  if (self.stuck) fail(ErrorKind::timeout, "{}", deadlock_);
  if (!self.inbox.empty()) {
    Message message = std::move(self.inbox.front());
    self.inbox.pop_front();
    return message;
  }
  if (!self.lost.empty()) {
    const std::size_t peer = self.lost.front();
    self.lost.pop_front();
    fail(ErrorKind::peer_lost, "{}: the link is closed", to_string(places_[peer].peer));
  }
  self.woken = false;
  return std::nullopt;
}

/// Gives the baton to the next one, and comes back once it is this one's. It is let go without the lock, which the next
/// one would only wait for.
void SimulatedNetwork::State::wait_turn(std::unique_lock<std::mutex>& lock, Participant& self) {
  pass_on();
  Participant& next = places_[*running_];
  if (&next == &self) return;
  lock.unlock();
  next.turn.release();
  self.turn.acquire();
  lock.lock();
}

/// Who goes on: nobody where all have ended.
void SimulatedNetwork::State::pass_on() {
  for (;;) {
    running_ = choose();
    if (running_) return;
    if (std::all_of(places_.begin(), places_.end(), [](const Participant& place) { return place.ended; })) return;
    if (!advance()) get_stuck();
  }
}

/// One of those that can go on.
std::optional<std::size_t> SimulatedNetwork::State::choose() {
  std::vector<std::size_t> able;
  for (std::size_t r = 0; r < places_.size(); ++r)
    if (places_[r].able()) able.push_back(r);
  if (able.empty()) return std::nullopt;
  return able.size() == 1 ? able.front() : able[rng_.bits(draws_++) % able.size()];
}

/// To the next moment at which something happens; false where there is none.
bool SimulatedNetwork::State::advance() {
  Moment deadline = kNever;
  for (const Participant& place : places_)
    if (!place.ended && !place.away) deadline = std::min(deadline, place.deadline);
  const Moment next = events_.empty() ? deadline : std::min(deadline, events_.top().time);
  if (next - Moment{} > options_.limit) return false;
  if (!events_.empty() && events_.top().time <= deadline) {
    const Event event = events_.top();
    events_.pop();
    now_ = std::max(now_, event.time);
    happen(event);
    return true;
  }
  const bool computing =
      std::any_of(places_.begin(), places_.end(), [](const Participant& place) { return place.sleeps; });
  if (deadline == kNever || (deadline > heard_ + options_.patience && !computing)) return false;
  expire(deadline);
  return true;
}

void SimulatedNetwork::State::happen(const Event& event) {
  Participant& to = places_[event.to];
  switch (event.kind) {
    case Event::Kind::departs:
      if (!places_[event.from].dead && places_[event.from].incarnation == event.from_life) travel(event);
      return;
    case Event::Kind::arrives:
      if (to.away || to.incarnation != event.to_life || places_[event.from].incarnation != event.from_life) return;
      if ((event.message->header.flags & FrameHeader::kProbe) == 0) heard_ = now_;
      return to.inbox.push_back(std::move(*event.message));
    case Event::Kind::dies:
      return die(event);
    case Event::Kind::returns:
      heard_ = now_;
      to.inbox.clear();
      to.lost.clear();
      to.woken = to.dead = to.away = false;
      ++to.incarnation;
      return;
    case Event::Kind::is_lost:
      heard_ = now_;
      if (to.incarnation == event.to_life) to.lost.push_back(event.from);
      return;
  }
}

void SimulatedNetwork::State::die(const Event& event) {
  Participant& self = places_[event.to];
  heard_ = now_;
  if (self.ended || self.away || self.dead) return;
  self.dead = true;
  self.returns.reset();
  if (event.returns_after) self.returns = now_ + *event.returns_after;
  for (std::size_t other = 0; other < places_.size(); ++other)
    if (other != event.to)
      add({.time = now_ + options_.link.delay,
           .kind = Event::Kind::is_lost,
           .from = event.to,
           .to = other,
           .to_life = places_[other].incarnation});
}

/// From the sender's card to the receiver's.
void SimulatedNetwork::State::travel(const Event& departure) {
  const std::size_t bytes = kHeaderBytes + departure.message->payload.size();
  const Moment time = places_[departure.to].card.arrive(bytes, now_);
  const Trouble& trouble = options_.trouble;
  if (chance(trouble.duplicate)) arrive(departure, time);
  if (!chance(trouble.drop)) arrive(departure, time);
}

void SimulatedNetwork::State::arrive(const Event& departure, Moment time) {
  Event event = departure;
  event.kind = Event::Kind::arrives;
  event.time = time;
  const Trouble& trouble = options_.trouble;
  if (trouble.extra_delay > Nanoseconds(0))
    event.time += Nanoseconds(static_cast<std::int64_t>(static_cast<double>(trouble.extra_delay.count()) *
                                                        static_cast<double>(rng_.uniform(draws_++))));
  event.message = chance(trouble.corrupt) ? changed(*departure.message) : std::make_shared<Message>(*departure.message);
  add(std::move(event));
}

std::shared_ptr<Message> SimulatedNetwork::State::changed(const Message& message) {
  auto other = std::make_shared<Message>(message);
  const std::uint32_t bit = rng_.bits(draws_++);
  if (message.payload.empty()) {
    other->header.step ^= std::uint64_t{1} << (bit % 64);
    return other;
  }
  const std::shared_ptr<std::byte> block = blocks_->take(message.payload.size());
  std::memcpy(block.get(), message.payload.data(), message.payload.size());
  block.get()[bit / 8 % message.payload.size()] ^= std::byte{1} << (bit % 8);
  other->payload = {block.get(), message.payload.size()};
  other->holder = block;
  return other;
}

void SimulatedNetwork::State::expire(Moment time) {
  now_ = std::max(now_, time);
  for (Participant& place : places_) place.expired = place.expired || (place.waits && place.deadline <= time);
}

void SimulatedNetwork::State::get_stuck() {
  const bool workers = std::all_of(places_.begin(), places_.end(),
                                   [](const Participant& place) { return place.peer.role == Role::worker; });
  std::string waiting;
  std::string gone;
  for (Participant& place : places_) {
    std::string& list = place.ended ? gone : waiting;
    list += (list.empty() ? "" : ", ") + (workers ? std::to_string(place.peer.rank) : to_string(place.peer));
    place.stuck = !place.ended;
  }
  deadlock_ = fmt::format("deadlock at {:.6f} s: {}{} wait{}", seconds(now_ - Moment{}), workers ? "workers " : "",
                          waiting, gone.empty() ? "" : "; ended: " + gone);
}

class SimulatedNetwork::Endpoint final : public Transport {
 public:
  Endpoint(State& state, std::size_t place, const Options& options)
      : state_(state), place_(place), options_(options), sequences_(options.peers.size(), 0) {}

  void send(Peer to, FrameHeader header, std::span<const std::byte> payload) override {
    check(payload.size() <= kMaxPayloadBytes, "a payload of {} bytes for {}", payload.size(), to_string(to));
    const auto found = std::find(options_.peers.begin(), options_.peers.end(), to);
    const auto other = static_cast<std::size_t>(found - options_.peers.begin());
    if (found == options_.peers.end() || other == place_)
      fail(ErrorKind::peer_lost, "{}: there is no link to it", to_string(to));
    header.job = options_.job;
    header.sender_role = options_.peers[place_].role;
    header.sender_rank = options_.peers[place_].rank;
    header.payload_bytes = payload.size();
    header.sequence = sequences_[other]++;
    if (state_.send(place_, other, header, payload)) count(ByteLedger::Direction::sent, header, to);
  }

  std::optional<Message> receive(Moment deadline) override {
    std::optional<Message> message = state_.receive(place_, deadline);
    if (message) count(ByteLedger::Direction::received, message->header, message->header.sender());
    return message;
  }

  std::size_t in_flight_bytes(Peer /*peer*/) const override { return 0; }
  std::string describe(Peer /*peer*/) const override { return "simulated " + to_string(options_.link); }
  void wake() override { state_.wake(place_); }

 private:
  void count(ByteLedger::Direction direction, const FrameHeader& header, Peer peer) {
    const bool start_up = (header.flags & FrameHeader::kStartUp) != 0;
    state_.ledger(place_).add(direction, start_up ? "start-up" : std::string(to_string(header.type)), to_string(peer),
                              header.payload_bytes, kHeaderBytes);
  }

  State& state_;
  const std::size_t place_;
  const Options& options_;
  std::vector<std::uint64_t> sequences_;
};

namespace {

SimulatedNetwork::Options with_peers(SimulatedNetwork::Options options) {
  for (std::uint32_t rank = 0; options.peers.size() < options.ranks; ++rank)
    options.peers.push_back({Role::worker, rank});
  return options;
}

}  // namespace

SimulatedNetwork::SimulatedNetwork(const Options& options) : state_(std::make_unique<State>(with_peers(options))) {
  for (std::size_t place = 0; place < state_->options().peers.size(); ++place)
    endpoints_.push_back(std::make_unique<Endpoint>(*state_, place, state_->options()));
}

SimulatedNetwork::~SimulatedNetwork() = default;

Transport& SimulatedNetwork::transport(std::size_t place) { return *endpoints_.at(place); }

Transport& SimulatedNetwork::transport(Peer peer) {
  const std::vector<Peer>& peers = state_->options().peers;
  return transport(static_cast<std::size_t>(std::find(peers.begin(), peers.end(), peer) - peers.begin()));
}

std::uint32_t SimulatedNetwork::incarnation(std::size_t place) const { return state_->incarnation(place); }

bool SimulatedNetwork::dead(std::size_t place) const { return state_->dead(place); }

void SimulatedNetwork::kill(std::size_t place, std::optional<Nanoseconds> returns_after) {
  state_->kill(place, returns_after);
}

const ByteLedger& SimulatedNetwork::bytes(std::size_t place) const { return state_->ledger(place); }

const Clock& SimulatedNetwork::clock() const { return state_->clock(); }

void SimulatedNetwork::run(const std::function<void(std::size_t place)>& body) {
  std::vector<std::exception_ptr> errors(endpoints_.size());
  const auto live = [&](std::size_t place) {
    try {
      body(place);
    } catch (...) {
      errors[place] = std::current_exception();
    }
    const State::End end = state_->end(place);
    if (end != State::End::done) errors[place] = nullptr;
    return end == State::End::again;
  };
  {
    std::vector<std::jthread> threads;
    for (std::size_t place = 0; place < endpoints_.size(); ++place)
      threads.emplace_back([&, place] {
        state_->await_turn(place);
        while (live(place)) {
        }
      });
    state_->start();
  }
  for (const std::exception_ptr& error : errors)
    if (error) std::rethrow_exception(error);
}

}  // namespace psring::net
