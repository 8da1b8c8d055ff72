#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <psring/common/base/clock.h>
#include <psring/common/base/patience.h>
#include <psring/common/base/system/mutex.h>
#include <psring/common/base/text/error.h>
#include <psring/ring/element.h>
#include <psring/ring/process_group.h>
#include <psring/ring/work.h>

namespace psring::ring {
class InnerGroup;
}

namespace psring::c {

/// An operation of the C interface in flight. Guarded by the engine's lock, except `ended`.
class Flight {
 public:
  virtual ~Flight() = default;
  /// Makes all progress that is possible without waiting; returns true once complete. Throws the error that ends the
  /// job.
  virtual bool advance() = 0;
  /// "all_reduce of 1024 f32, waiting for ranks 1 and 3". REQUIRES: not complete.
  virtual std::string doing() = 0;

  /// Marks it as complete or failed: it no longer needs its group. Called under the engine's lock. Memory order: result
  /// and error are written before; who looks without the lock acquires, who has the lock needs no order.
  void end() noexcept {
    group.reset();
    ended.store(true, std::memory_order_release);
  }

  std::shared_ptr<void> group;  ///< lives at least until the operation has ended; null: the job's own group
  std::optional<Error> error;
  std::atomic<bool> ended{false};  ///< complete, or failed; written last
};

/// An operation that is complete once all of its works are.
class Works : public Flight {
 public:
  /// `name`: such as "all_reduce"; `data`: the bytes that it moves at this rank; empty: none.
  explicit Works(const char* name, const ring::ConstVector& data = {}) : name_(name), data_(data) {}
  void add(ring::Work work) { works_.push_back(std::move(work)); }
  bool advance() override;
  std::string doing() override;

 private:
  const char* const name_;
  const ring::ConstVector data_;
  std::vector<ring::Work> works_;  ///< emptied once complete: a handle may outlive its group
  std::size_t done_ = 0;           ///< the first works are complete
};

/// Lets any thread start operations on the groups of one job and wait for them, although a group belongs to one thread.
/// Groups are used under one lock. One of the waiting threads, the leader, sleeps until a peer makes news, and advances
/// all operations; the others, the followers, sleep until the leader wakes them. If operations are in flight and no
/// thread waits, a thread of the engine leads.
///
/// On links the leader sleeps under the lock. So every thread that wants the lock, also a follower that was woken,
/// counts itself in `entering_` and wakes the leader, which then waits until no thread wants the lock. A follower that
/// slept on a condition of the lock itself would try to get it back uncounted: a leader that waits for another rank
/// would keep the lock, and the follower's thread could not begin the operation that the other rank waits for.
///
/// The first error that ends the job is latched: all flights fail with it, and all later calls throw it.
class Engine {
 public:
  /// `check` throws if the job has failed; called every 20 ms of a wait. `world` outlives the engine.
  Engine(ring::ProcessGroup& world, std::function<void()> check);
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  /// Calls `begin`, which starts an operation on the job's groups, and returns it. It may be complete already.
  std::shared_ptr<Flight> start(const std::function<std::shared_ptr<Flight>()>& begin);
  /// Waits until the flight has ended, or until the moment; returns true if it is complete. Throws the flight's error.
  bool wait(Flight& flight, Moment until);
  /// Describes the flight's operation, and the ranks that it waits for; "" if it has ended.
  std::string doing(Flight& flight);
  /// Advances all flights without waiting; returns true if this one is complete. Throws the flight's error.
  bool test(Flight& flight);
  /// Ends the job here, and at ranks that share this one's memory, with this error. Ignored if it has ended already.
  void end(const Error& error) noexcept;
  /// Ends the flights that are left once no other rank makes progress: they fail with usage, and say why.
  void end_flights(const std::string& why);
  /// Throws the latched error.
  void check();
  /// Calls `body` under the lock that guards all groups.
  template <class Body>
  auto locked(Body body) {
    Enter enter(*this);
    return body();
  }

 private:
  /// Takes the lock; a leader that sleeps under the lock makes way.
  class PSRING_THREAD_SAFETY(scoped_lockable) Enter {
   public:
    explicit Enter(Engine& engine) PSRING_THREAD_SAFETY(acquire_capability(engine.mutex_));
    ~Enter() PSRING_THREAD_SAFETY(release_capability());
    /// Gives the lock away until the leader tells news, or until the moment.
    void follow(Moment until);

   private:
    void take() PSRING_THREAD_SAFETY(acquire_capability(engine_.mutex_));
    void give() PSRING_THREAD_SAFETY(release_capability(engine_.mutex_));

    Engine& engine_;
  };

  bool spin(Flight& flight);
  void advance_all() PSRING_REQUIRES(mutex_);
  template <class Going>
  void lead(Moment until, Going going) PSRING_REQUIRES(mutex_);
  void lead_once(Moment until) PSRING_REQUIRES(mutex_);
  void rest(Moment until) PSRING_REQUIRES(mutex_);
  void check_job() PSRING_REQUIRES(mutex_);
  void latch(const Error& error) noexcept PSRING_REQUIRES(mutex_);
  void tell_followers() noexcept;
  void run_background();

  ring::ProcessGroup& world_;
  ring::InnerGroup* const inner_;  ///< the world, if it can tell when there is news; otherwise null
  const std::function<void()> check_;
  const SystemClock clock_;
  const bool crowded_;  ///< more ranks than processors: a spinning thread may keep the awaited one from running

  Patience patience_;                       ///< of all threads
  std::atomic<unsigned> entering_{0};       ///< threads that want the lock
  std::atomic<bool> sleeps_locked_{false};  ///< the leader sleeps under the lock, until wake
  Mutex news_mutex_;                        ///< taken last
  Condition told_;
  /// How often flights have ended or a leader has stopped; only grows under mutex_, too.
  std::uint64_t news_ PSRING_GUARDED_BY(news_mutex_) = 0;

  Mutex mutex_;
  Condition left_;        ///< a thread has given the lock away while another one leads
  Condition background_;  ///< there are flights, or the engine stops
  std::list<std::shared_ptr<Flight>> flights_ PSRING_GUARDED_BY(mutex_);
  std::optional<Error> error_ PSRING_GUARDED_BY(mutex_);
  Moment checked_ PSRING_GUARDED_BY(mutex_){};
  unsigned waiting_ PSRING_GUARDED_BY(mutex_) = 0;  ///< threads in `wait`, the leader among them
  bool leading_ PSRING_GUARDED_BY(mutex_) = false;
  bool background_idle_ PSRING_GUARDED_BY(mutex_) = true;
  bool stop_ PSRING_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace psring::c
