#include <algorithm>
#include <deque>
#include <exception>
#include <string>
#include <thread>

#include <semaphore.h>

#include <psring/common/base/system/mutex.h>
#include <psring/common/base/text/error.h>
#include <psring/common/net/sim/simulated.h>
#include <psring/common/net/sim/simulated_world.h>

namespace psring::net {
namespace {

SimulatedNetwork::Options with_peers(SimulatedNetwork::Options options) {
  for (std::uint32_t rank = 0; options.peers.size() < options.ranks; ++rank)
    options.peers.push_back({Role::worker, rank});
  return options;
}

}  // namespace

/// The baton: the thread of one peer at a time has it, and alone uses the world.
class SimulatedNetwork::State {
 public:
  using End = SimulatedWorld::End;

  explicit State(const Options& options) : world_(options), turns_(options.peers.size()) {}

  Moment now() const {
    const MutexLock lock(mutex_);
    return world_.now();
  }
  const Clock& clock() const { return clock_; }
  const Options& options() const PSRING_UNCHECKED { return world_.options(); }  // constant
  ByteLedger& ledger(std::size_t place) {
    const MutexLock lock(mutex_);
    return world_.ledger(place);
  }
  bool send(std::size_t from, std::size_t to, const FrameHeader& header, std::span<const std::byte> payload) {
    const MutexLock lock(mutex_);
    return world_.send(from, to, header, payload);
  }
  std::size_t waiting_bytes(std::size_t from, std::size_t to) {
    const MutexLock lock(mutex_);
    return world_.waiting_bytes(from, to);
  }
  std::size_t window_bytes(std::size_t from, std::size_t to) {
    const MutexLock lock(mutex_);
    return world_.window_bytes(from, to);
  }
  std::optional<Message> receive(std::size_t place, Moment deadline);
  /// The peer that runs sleeps.
  void sleep_until(Moment moment);
  void wake(std::size_t place) {
    const MutexLock lock(mutex_);
    world_.wake(place);
  }
  std::uint32_t incarnation(std::size_t place) const {
    const MutexLock lock(mutex_);
    return world_.incarnation(place);
  }
  bool dead(std::size_t place) const {
    const MutexLock lock(mutex_);
    return world_.dead(place);
  }
  void kill(std::size_t place, std::optional<Nanoseconds> returns_after) {
    const MutexLock lock(mutex_);
    world_.kill(place, returns_after);
  }

  void start() {
    const MutexLock lock(mutex_);
    check(!running_, "a simulated network runs once");
    running_ = world_.next_to_run();
    turns_[*running_].release();
  }
  void await_turn(std::size_t place) { turns_[place].acquire(); }
  /// The work of the peer's thread has ended. Waits for the peer's return, if the peer comes back.
  End end(std::size_t place);

 private:
  class OwnClock final : public Clock {
   public:
    explicit OwnClock(State& state) : state_(state) {}
    Moment now() const override { return state_.now(); }
    void sleep_until(Moment moment) const override { state_.sleep_until(moment); }

   private:
    State& state_;
  };
  /// Sleeps until it is released. std::binary_semaphore yields the processor several times before it sleeps: beside a
  /// busy process, each yield costs a time slice.
  class Turn {
   public:
    Turn() { check(::sem_init(&begins_, 0, 0) == 0, "sem_init"); }
    ~Turn() { ::sem_destroy(&begins_); }
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;

    void release() { ::sem_post(&begins_); }
    void acquire() {
      while (::sem_wait(&begins_) != 0) continue;  // a signal arrived
    }

   private:
    sem_t begins_{};
  };

  void wait_turn(std::size_t place) PSRING_REQUIRES(mutex_);

  const OwnClock clock_{*this};
  mutable Mutex mutex_;
  SimulatedWorld world_ PSRING_GUARDED_BY(mutex_);
  std::optional<std::size_t> running_ PSRING_GUARDED_BY(mutex_);  ///< the place whose thread has the baton
  std::deque<Turn> turns_;                                        ///< by place; released when the thread gets the baton
};

SimulatedNetwork::State::End SimulatedNetwork::State::end(std::size_t place) {
  const MutexLock lock(mutex_);
  const End end = world_.end(place);
  if (end == End::again) {
    wait_turn(place);
  } else {
    running_ = world_.next_to_run();
    if (running_) turns_[*running_].release();
  }
  return end;
}

std::optional<Message> SimulatedNetwork::State::receive(std::size_t place, Moment deadline) {
  const MutexLock lock(mutex_);
  if (!world_.has_news(place)) {
    world_.begin_wait(place, deadline);
    wait_turn(place);
    world_.end_wait(place);
  }
  return world_.take(place);
}

void SimulatedNetwork::State::sleep_until(Moment moment) {
  const MutexLock lock(mutex_);
  check(running_.has_value(), "only a peer of the simulated network can sleep on its clock");
  const std::size_t place = *running_;
  if (!world_.begin_sleep(place, moment)) return;
  wait_turn(place);
  world_.end_wait(place);
}

/// Hands the baton on, and returns once this thread has it again; returns at once if all peers have ended. The baton is
/// handed over without the lock, because the next thread would only wait for the lock.
void SimulatedNetwork::State::wait_turn(std::size_t place) {
  running_ = world_.next_to_run();
  if (!running_ || *running_ == place) return;
  const std::size_t next = *running_;
  mutex_.unlock();
  turns_[next].release();
  turns_[place].acquire();
  mutex_.lock();
}

class SimulatedNetwork::Endpoint final : public Transport {
 public:
  Endpoint(State& state, std::size_t place, const Options& options)
      : state_(state), place_(place), options_(options), sequences_(options.peers.size(), 0) {}

  void send(Peer to, FrameHeader header, std::span<const std::byte> payload) override {
    if (payload.size() > kMaxPayloadBytes)
      fail(ErrorKind::bug, "a payload of {} bytes for {}", payload.size(), to_string(to));
    const std::size_t other = place_of(to);
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

  std::size_t in_flight_bytes(Peer peer) const override {
    return options_.windows ? state_.waiting_bytes(place_, place_of(peer)) : 0;
  }
  std::size_t window_bytes(Peer peer) const override {
    return options_.windows ? state_.window_bytes(place_, place_of(peer)) : kWindowBytes;
  }
  std::string describe(Peer /*peer*/) const override { return "simulated " + to_string(options_.link); }
  void wake() override { state_.wake(place_); }

 private:
  std::size_t place_of(Peer peer) const {
    const auto found = std::find(options_.peers.begin(), options_.peers.end(), peer);
    const auto place = static_cast<std::size_t>(found - options_.peers.begin());
    if (found == options_.peers.end() || place == place_)
      fail(ErrorKind::peer_lost, "there is no link to {}", to_string(peer));
    return place;
  }
  void count(ByteLedger::Direction direction, const FrameHeader& header, Peer peer) {
    const bool start_up = (header.flags & FrameHeader::kStartUp) != 0;
    state_.ledger(place_).add(direction, start_up ? "start-up" : to_string(header.type), to_string(peer),
                              header.payload_bytes, kHeaderBytes);
  }

  State& state_;
  const std::size_t place_;
  const Options& options_;
  std::vector<std::uint64_t> sequences_;  ///< by the receiver's place: the number of the next frame
};

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
