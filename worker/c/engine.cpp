#include <algorithm>
#include <chrono>
#include <set>
#include <utility>

#include <fmt/format.h>

#include <psring/common/base/processor/hints.h>
#include <psring/common/base/system/mutex.h>
#include <psring/common/base/system/processors.h>
#include <psring/ring/call.h>
#include <psring/ring/inner_group.h>
#include <psring/ring/shm/bells.h>
#include <psring/worker/c/engine.h>

namespace psring::c {
namespace {

using namespace std::chrono_literals;

constexpr Nanoseconds kCheck = 20ms;     ///< of waiting, then the leader checks whether the peers live
constexpr Nanoseconds kSpin = 30us;      ///< of polling before a thread yields
constexpr Nanoseconds kYield = 300us;    ///< of yielding before a thread sleeps
constexpr Nanoseconds kUnwatched = 1ms;  ///< the sleep where no group can tell when there is news
/// Nobody waits for an operation for so long: then the engine's thread looks after it.
constexpr Nanoseconds kUnattended = 1ms;
constexpr unsigned kLinger = 100;  ///< times of kUnattended without a flight, then the engine's thread sleeps

}  // namespace

Engine::Enter::Enter(Engine& engine) : engine_(engine) { take(); }
Engine::Enter::~Enter() { give(); }

void Engine::Enter::take() {
  ++engine_.entering_;
  if (engine_.sleeps_locked_.load()) engine_.inner_->wake();
  engine_.mutex_.lock();
  --engine_.entering_;
}

/// A leader that made way continues once no thread wants the lock.
void Engine::Enter::give() {
  if (engine_.leading_) engine_.left_.notify_all();
  engine_.mutex_.unlock();
}

void Engine::Enter::follow(Moment until) PSRING_UNCHECKED {
  MutexLock news(engine_.news_mutex_);
  const std::uint64_t seen = engine_.news_;
  give();
  engine_.told_.wait_until(engine_.news_mutex_, until, [&] {
    engine_.news_mutex_.assert_held();
    return engine_.news_ != seen;
  });
  news.unlock();
  take();
}

Engine::Engine(ring::ProcessGroup& world, std::function<void()> check)
    : world_(world),
      inner_(dynamic_cast<ring::InnerGroup*>(&world)),
      check_(std::move(check)),
      crowded_(world.size() > usable_processors()),
      thread_([this] { run_background(); }) {}

Engine::~Engine() {
  {
    Enter enter(*this);
    stop_ = true;
    background_.notify_all();
  }
  thread_.join();
  for (const auto& flight : flights_) flight->end();
}

bool Works::advance() {
  while (done_ < works_.size() && works_[done_].done()) ++done_;
  if (done_ < works_.size()) return false;
  works_.clear();
  done_ = 0;
  return true;
}

std::string Works::doing() {
  std::set<std::size_t> awaited;
  for (std::size_t at = done_; at < works_.size(); ++at) {
    if (works_[at].done()) continue;
    const std::vector<std::size_t> ranks = works_[at].awaited();
    awaited.insert(ranks.begin(), ranks.end());
  }
  std::string text = name_;
  if (data_.count > 0) text += fmt::format(" of {} {}", data_.count, to_string(data_.type));
  if (!awaited.empty()) text += fmt::format(", waiting for {}", ring::names_of({awaited.begin(), awaited.end()}));
  return text;
}

std::shared_ptr<Flight> Engine::start(const std::function<std::shared_ptr<Flight>()>& begin) {
  Enter enter(*this);
  if (error_) throw Error(*error_);
  // If this throws, nothing has begun: an argument is wrong, or the group has failed before.
  std::shared_ptr<Flight> flight = begin();
  try {
    if (flight->advance()) {
      flight->end();
      return flight;
    }
  } catch (const std::exception& error) {
    latch(to_error(error));
    throw;
  }
  flights_.push_back(flight);  // shared with the caller's handle, which may be freed first
  if (background_idle_) background_.notify_one();
  return flight;
}

/// Memory order: see Flight::end.
bool Engine::test(Flight& flight) {
  if (!flight.ended.load(std::memory_order_acquire)) {
    Enter enter(*this);
    advance_all();
    if (clock_.now() - checked_ > kCheck) check_job();
  }
  if (!flight.ended.load(std::memory_order_acquire)) return false;
  if (flight.error) throw Error(*flight.error);
  return true;
}

std::string Engine::doing(Flight& flight) {
  Enter enter(*this);
  if (flight.ended.load(std::memory_order_relaxed)) return "";
  try {
    return flight.doing();
  } catch (const std::exception& error) {
    latch(to_error(error));
    return "";
  }
}

bool Engine::spin(Flight& flight) {
  const Moment begin = clock_.now();
  const Moment yields_from = begin + (crowded_ ? Nanoseconds(0) : kSpin);
  const Moment sleeps_from = begin + kYield;
  bool yielded = false;
  bool brief = patience_.hopeful();
  for (;;) {
    const bool done = test(flight);
    const Moment now = clock_.now();
    if (done || now >= sleeps_from || (now >= yields_from && !brief)) {
      if (!brief || (done && yielded)) patience_.learn(brief);
      return done;
    }
    if (now >= yields_from) {
      brief = yield_briefly();
      yielded = true;
    } else {
      for (int i = 0; i < 16; ++i) spin_pause();
    }
  }
}

bool Engine::wait(Flight& flight, Moment until) {
  if (test(flight)) return true;
  if (until > clock_.now() + kYield && spin(flight)) return true;
  Enter enter(*this);
  struct Waiting {
    unsigned& count;
    ~Waiting() { --count; }
  } const waiting{++waiting_};
  const auto going = [&] { return !flight.ended.load(std::memory_order_relaxed) && clock_.now() < until; };
  while (going()) {
    if (leading_)
      enter.follow(until);
    else
      lead(until, going);
  }
  if (!flight.ended.load(std::memory_order_relaxed)) return false;
  if (flight.error) throw Error(*flight.error);
  return true;
}

template <class Going>
void Engine::lead(Moment until, Going going) {
  struct Leading {
    Engine& engine;
    ~Leading() {
      engine.leading_ = false;
      engine.tell_followers();
    }
  } const leading{*this};
  leading_ = true;
  while (going()) lead_once(until);
}

/// Sleeps once until there is news, at most until the moment, and advances all flights.
void Engine::lead_once(Moment until) {
  try {
    rest(std::min(until, clock_.now() + kCheck));
  } catch (const std::exception& error) {  // std::bad_alloc, too: this may be the engine's own thread
    latch(to_error(error));
  }
  advance_all();
  if (clock_.now() - checked_ > kCheck) check_job();
}

void Engine::tell_followers() noexcept {
  {
    const MutexLock lock(news_mutex_);
    ++news_;
  }
  told_.notify_all();
}

/// In shared memory the leader sleeps without the lock; on links it sleeps in the transport, under the lock, and others
/// wake it.
void Engine::rest(Moment until) {
  if (inner_ == nullptr) {
    left_.wait_until(mutex_, std::min(until, clock_.now() + kUnwatched));
    return;
  }
  const std::uint32_t seen = inner_->watch();
  const std::size_t flights = flights_.size();
  advance_all();
  if (flights_.size() != flights || flights_.empty()) return inner_->leave();
  if (inner_->arena() != nullptr) {
    mutex_.unlock();
    try {
      inner_->rest(seen, until);
    } catch (...) {
      mutex_.lock();
      throw;
    }
    mutex_.lock();
    return;
  }
  sleeps_locked_.store(true);
  if (entering_.load() == 0) inner_->rest(seen, until);
  sleeps_locked_.store(false);
  if (entering_.load() > 0) left_.wait_for(mutex_, kUnwatched, [&] { return entering_.load() == 0; });
}

void Engine::advance_all() {
  if (flights_.empty()) return;
  bool ended = false;
  for (auto at = flights_.begin(); at != flights_.end();) {
    bool complete = false;
    try {
      complete = (*at)->advance();
    } catch (const std::exception& error) {
      return latch(to_error(error));
    }
    if (!complete) {
      ++at;
      continue;
    }
    (*at)->end();
    at = flights_.erase(at);
    ended = true;
  }
  if (ended && waiting_ > 0) tell_followers();
}

void Engine::check_job() {
  checked_ = clock_.now();
  if (error_) return;
  try {
    check_();
  } catch (const std::exception& error) {
    // A rank that has ended after its last operation is lost, too: its earlier work completes our operations first.
    advance_all();
    latch(to_error(error));
  }
}

void Engine::latch(const Error& error) noexcept {
  if (!error_) error_ = error;
  if (inner_ != nullptr) inner_->break_off(*error_);
  for (const auto& flight : flights_) {
    flight->error = error_;
    flight->end();
  }
  flights_.clear();
  tell_followers();
}

void Engine::end(const Error& error) noexcept {
  Enter enter(*this);
  if (!error_) latch(error);
}

void Engine::end_flights(const std::string& why) {
  Enter enter(*this);
  advance_all();
  for (const auto& flight : flights_) {
    flight->error = Error(ErrorKind::usage, fmt::format("{}: {}", flight->doing(), why));
    flight->end();
  }
  flights_.clear();
  tell_followers();
}

void Engine::check() {
  Enter enter(*this);
  check_job();
  if (error_) throw Error(*error_);
}

void Engine::run_background() {
  MutexLock lock(mutex_);
  unsigned quiet = 0;
  while (!stop_) {
    background_idle_ = quiet >= kLinger;
    if (background_idle_)
      background_.wait(mutex_, [&] {
        mutex_.assert_held();
        return stop_ || !flights_.empty();
      });
    background_idle_ = false;
    if (flights_.empty()) {
      ++quiet;
    } else {
      quiet = 0;
    }
    background_.wait_for(mutex_, kUnattended, [&] {
      mutex_.assert_held();
      return stop_;
    });
    const auto unattended = [&] {
      mutex_.assert_held();
      return !stop_ && !flights_.empty() && waiting_ == 0;
    };
    if (!leading_ && unattended()) lead(kNever, unattended);
  }
}

}  // namespace psring::c
