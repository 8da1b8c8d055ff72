#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <exception>
#include <mutex>
#include <queue>
#include <string>
#include <thread>
#include <tuple>
#include <utility>

#include <psring/common/base/error.h>
#include <psring/common/base/rng.h>
#include <psring/common/net/block_pool.h>
#include <psring/common/net/simulated.h>

namespace psring::net {
namespace {

constexpr Nanoseconds kLookTime = std::chrono::microseconds(1);

/// Something that happens at a moment.
struct Event {
  enum class Kind : std::uint8_t { departs, arrives, dies, is_lost };

  Moment time;
  std::uint32_t tie = 0;  ///< of the seed: decides among those of one moment
  std::uint64_t order = 0;
  Kind kind = Kind::departs;
  std::size_t from = 0;
  std::size_t to = 0;
  std::shared_ptr<Message> message = nullptr;  ///< shared because a priority queue only hands out copies

  friend bool operator>(const Event& a, const Event& b) {
    return std::tie(a.time, a.tie, a.order) > std::tie(b.time, b.tie, b.order);
  }
};

/// As one rank has it. What it waits for comes in `inbox`, `lost` or one of the flags.
struct Rank {
  explicit Rank(const LinkSpec& link) : card(link) {}

  bool has_news() const { return !inbox.empty() || !lost.empty() || woken || dead || stuck; }
  bool able() const { return !ended && (!waits || expired || (sleeps ? dead || stuck : has_news())); }

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
  bool ended = false;
  bool stuck = false;  ///< the network has found a deadlock
  std::condition_variable turn;
};

}  // namespace

/// The network, and who runs. All of it is guarded by the mutex, but is only ever used by the rank that runs.
class SimulatedNetwork::State {
 public:
  explicit State(const Options& options) : options_(options), rng_({options.seed, Purpose::network}) {
    for (std::size_t r = 0; r < options_.ranks; ++r) ranks_.emplace_back(options_.link);
    for (const Death& death : options_.deaths) add(Moment{} + death.at, Event::Kind::dies, death.rank, death.rank);
  }

  Moment now() const {
    const std::scoped_lock lock(mutex_);
    return now_;
  }
  const Clock& clock() const { return clock_; }
  /// Of the rank that runs.
  void sleep_until(Moment moment);
  ByteLedger& ledger(std::size_t rank) { return ranks_[rank].ledger; }
  bool send(std::size_t from, std::size_t to, FrameHeader header, std::span<const std::byte> payload);
  std::optional<Message> receive(std::size_t rank, Moment deadline);
  void wake(std::size_t rank) {
    const std::scoped_lock lock(mutex_);
    ranks_[rank].woken = true;
  }

  void start() {
    const std::scoped_lock lock(mutex_);
    check(!running_, "a simulated network runs once");
    pass_on();
  }
  void await_turn(std::size_t rank) {
    std::unique_lock lock(mutex_);
    ranks_[rank].turn.wait(lock, [&] { return running_ == rank; });
  }
  /// Did it live to its end?
  bool end(std::size_t rank) {
    const std::scoped_lock lock(mutex_);
    ranks_[rank].ended = true;
    heard_ = now_;
    pass_on();
    return !ranks_[rank].dead;
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

  void add(Moment time, Event::Kind kind, std::size_t from, std::size_t to, std::shared_ptr<Message> message = nullptr);
  void pass_on();
  std::optional<std::size_t> choose();
  bool advance();
  void happen(const Event& event);
  void expire(Moment time);
  void get_stuck();
  std::optional<Message> take(Rank& self);

  const OwnClock clock_{*this};
  const Options options_;
  const CounterRng rng_;
  const std::shared_ptr<BlockPool> blocks_ = std::make_shared<BlockPool>();
  mutable std::mutex mutex_;
  std::deque<Rank> ranks_;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  Moment now_{};
  Moment heard_{};  ///< when something happened last that is no deadline and no probe
  std::uint64_t draws_ = 0;
  std::uint64_t order_ = 0;
  std::optional<std::size_t> running_;
  std::string deadlock_;
};

void SimulatedNetwork::State::add(Moment time, Event::Kind kind, std::size_t from, std::size_t to,
                                  std::shared_ptr<Message> message) {
  events_.push({time, rng_.bits(draws_++), order_++, kind, from, to, std::move(message)});
}

bool SimulatedNetwork::State::send(std::size_t from, std::size_t to, FrameHeader header,
                                   std::span<const std::byte> payload) {
  const std::scoped_lock lock(mutex_);
  if (ranks_[from].dead) return false;
  auto message = std::make_shared<Message>();
  if (!payload.empty()) {
    const std::shared_ptr<std::byte> block = blocks_->take(payload.size());
    std::memcpy(block.get(), payload.data(), payload.size());
    message->payload = {block.get(), payload.size()};
    message->holder = block;
  }
  // Through the codec, as over any other transport: what it would refuse fails here too.
  message->header = decode(encode(header));
  const Moment departure = ranks_[from].card.depart(kHeaderBytes + payload.size(), now_);
  add(departure, Event::Kind::departs, from, to, std::move(message));
  return true;
}

std::optional<Message> SimulatedNetwork::State::receive(std::size_t rank, Moment deadline) {
  std::unique_lock lock(mutex_);
  Rank& self = ranks_[rank];
  if (!self.has_news()) {
    self.deadline = std::max(deadline, now_ + kLookTime);
    self.waits = true;
    pass_on();
    self.turn.wait(lock, [&] { return running_ == rank; });
    self.waits = self.expired = false;
  }
  return take(self);
}

void SimulatedNetwork::State::sleep_until(Moment moment) {
  std::unique_lock lock(mutex_);
  check(running_.has_value(), "only a rank of the network sleeps");
  const std::size_t rank = *running_;
  Rank& self = ranks_[rank];
  self.deadline = moment;
  self.waits = self.sleeps = moment > now_;
  if (!self.sleeps) return;
  pass_on();
  self.turn.wait(lock, [&] { return running_ == rank; });
  self.waits = self.sleeps = self.expired = false;
}

std::optional<Message> SimulatedNetwork::State::take(Rank& self) {
  if (self.dead) fail(ErrorKind::peer_lost, "this worker has died");
  if (self.stuck) fail(ErrorKind::timeout, "{}", deadlock_);
  if (!self.inbox.empty()) {
    Message message = std::move(self.inbox.front());
    self.inbox.pop_front();
    return message;
  }
  if (!self.lost.empty()) {
    const std::size_t peer = self.lost.front();
    self.lost.pop_front();
    fail(ErrorKind::peer_lost, "worker {}: the link is closed", peer);
  }
  self.woken = false;
  return std::nullopt;
}

/// Gives the baton to the next one.
void SimulatedNetwork::State::pass_on() {
  for (;;) {
    running_ = choose();
    if (running_) return ranks_[*running_].turn.notify_one();
    if (std::all_of(ranks_.begin(), ranks_.end(), [](const Rank& rank) { return rank.ended; })) return;
    if (!advance()) get_stuck();
  }
}

/// One of those that can go on.
std::optional<std::size_t> SimulatedNetwork::State::choose() {
  std::vector<std::size_t> able;
  for (std::size_t r = 0; r < ranks_.size(); ++r)
    if (ranks_[r].able()) able.push_back(r);
  if (able.empty()) return std::nullopt;
  return able.size() == 1 ? able.front() : able[rng_.bits(draws_++) % able.size()];
}

/// To the next moment at which something happens; false where there is none.
bool SimulatedNetwork::State::advance() {
  Moment deadline = kNever;
  for (const Rank& rank : ranks_)
    if (!rank.ended) deadline = std::min(deadline, rank.deadline);
  if (!events_.empty() && events_.top().time <= deadline) {
    const Event event = events_.top();
    events_.pop();
    now_ = std::max(now_, event.time);
    happen(event);
    return true;
  }
  const bool computing = std::any_of(ranks_.begin(), ranks_.end(), [](const Rank& rank) { return rank.sleeps; });
  if (deadline == kNever || (deadline > heard_ + options_.patience && !computing)) return false;
  expire(deadline);
  return true;
}

void SimulatedNetwork::State::happen(const Event& event) {
  Rank& to = ranks_[event.to];
  switch (event.kind) {
    case Event::Kind::departs: {
      if (ranks_[event.from].dead) return;
      const std::size_t bytes = kHeaderBytes + event.message->payload.size();
      return add(to.card.arrive(bytes, now_), Event::Kind::arrives, event.from, event.to, event.message);
    }
    case Event::Kind::arrives:
      if ((event.message->header.flags & FrameHeader::kProbe) == 0) heard_ = now_;
      return to.inbox.push_back(std::move(*event.message));
    case Event::Kind::dies:
      heard_ = now_;
      if (to.ended) return;
      to.dead = true;
      for (std::size_t r = 0; r < ranks_.size(); ++r)
        if (r != event.to) add(now_ + options_.link.delay, Event::Kind::is_lost, event.to, r);
      return;
    case Event::Kind::is_lost:
      heard_ = now_;
      return to.lost.push_back(event.from);
  }
}

void SimulatedNetwork::State::expire(Moment time) {
  now_ = std::max(now_, time);
  for (Rank& rank : ranks_) rank.expired = rank.expired || (rank.waits && rank.deadline <= time);
}

void SimulatedNetwork::State::get_stuck() {
  std::string waiting;
  std::string gone;
  for (std::size_t r = 0; r < ranks_.size(); ++r) {
    std::string& list = ranks_[r].ended ? gone : waiting;
    list += (list.empty() ? "" : ", ") + std::to_string(r);
    ranks_[r].stuck = !ranks_[r].ended;
  }
  deadlock_ = fmt::format("deadlock at {:.6f} s: workers {} wait{}", seconds(now_ - Moment{}), waiting,
                          gone.empty() ? "" : "; ended: " + gone);
}

class SimulatedNetwork::Endpoint final : public Transport {
 public:
  Endpoint(State& state, std::size_t rank, const Options& options)
      : state_(state), rank_(rank), options_(options), sequences_(options.ranks, 0) {}

  void send(Peer to, FrameHeader header, std::span<const std::byte> payload) override {
    check(payload.size() <= kMaxPayloadBytes, "a payload of {} bytes for {}", payload.size(), to_string(to));
    if (to.role != Role::worker || to.rank >= options_.ranks || to.rank == rank_)
      fail(ErrorKind::peer_lost, "{}: there is no link to it", to_string(to));
    header.job = options_.job;
    header.sender_role = Role::worker;
    header.sender_rank = static_cast<std::uint32_t>(rank_);
    header.payload_bytes = payload.size();
    header.sequence = sequences_[to.rank]++;
    if (state_.send(rank_, to.rank, header, payload)) count(ByteLedger::Direction::sent, header, to);
  }

  std::optional<Message> receive(Moment deadline) override {
    std::optional<Message> message = state_.receive(rank_, deadline);
    if (message) count(ByteLedger::Direction::received, message->header, message->header.sender());
    return message;
  }

  std::size_t in_flight_bytes(Peer /*peer*/) const override { return 0; }
  std::string describe(Peer /*peer*/) const override { return "simulated " + to_string(options_.link); }
  void wake() override { state_.wake(rank_); }

 private:
  void count(ByteLedger::Direction direction, const FrameHeader& header, Peer peer) {
    const bool start_up = (header.flags & FrameHeader::kStartUp) != 0;
    state_.ledger(rank_).add(direction, start_up ? "start-up" : std::string(to_string(header.type)), to_string(peer),
                             header.payload_bytes, kHeaderBytes);
  }

  State& state_;
  const std::size_t rank_;
  const Options options_;
  std::vector<std::uint64_t> sequences_;
};

SimulatedNetwork::SimulatedNetwork(const Options& options) : state_(std::make_unique<State>(options)) {
  for (std::size_t r = 0; r < options.ranks; ++r) endpoints_.push_back(std::make_unique<Endpoint>(*state_, r, options));
}

SimulatedNetwork::~SimulatedNetwork() = default;

Transport& SimulatedNetwork::transport(std::size_t rank) { return *endpoints_.at(rank); }

const ByteLedger& SimulatedNetwork::bytes(std::size_t rank) const { return state_->ledger(rank); }

const Clock& SimulatedNetwork::clock() const { return state_->clock(); }

void SimulatedNetwork::run(const std::function<void(std::size_t rank)>& body) {
  std::vector<std::exception_ptr> errors(endpoints_.size());
  {
    std::vector<std::jthread> threads;
    for (std::size_t r = 0; r < endpoints_.size(); ++r)
      threads.emplace_back([&, r] {
        state_->await_turn(r);
        try {
          body(r);
        } catch (...) {
          errors[r] = std::current_exception();
        }
        if (!state_->end(r)) errors[r] = nullptr;
      });
    state_->start();
  }
  for (const std::exception_ptr& error : errors)
    if (error) std::rethrow_exception(error);
}

}  // namespace psring::net
