#pragma once

#include <condition_variable>
#include <mutex>
#include <utility>

// Clang checks with -Wthread-safety that what a mutex guards is only used while it is held
// (https://clang.llvm.org/docs/ThreadSafetyAnalysis.html). Other compilers ignore these attributes.
#if defined(__clang__)
#define PSRING_THREAD_SAFETY(attribute) __attribute__((attribute))
#else
#define PSRING_THREAD_SAFETY(attribute)
#endif
/// A member that is only used while `mutex` is held; behind its name.
#define PSRING_GUARDED_BY(mutex) PSRING_THREAD_SAFETY(guarded_by(mutex))
/// A function that is called with `mutex` held, and returns with it.
#define PSRING_REQUIRES(mutex) PSRING_THREAD_SAFETY(requires_capability(mutex))
/// A function that takes or gives back what the analysis cannot follow.
#define PSRING_UNCHECKED PSRING_THREAD_SAFETY(no_thread_safety_analysis)

namespace psring {

/// A mutex that Clang's analysis of thread safety knows. Every mutex is one.
class PSRING_THREAD_SAFETY(capability("mutex")) Mutex {
 public:
  void lock() PSRING_THREAD_SAFETY(acquire_capability()) { mutex_.lock(); }
  void unlock() PSRING_THREAD_SAFETY(release_capability()) { mutex_.unlock(); }
  /// Tells the analysis that the caller has it: at the begin of a lambda that is called under the mutex.
  void assert_held() const PSRING_THREAD_SAFETY(assert_capability(this)) {}

 private:
  friend class MutexLock;
  template <class Variable>
  friend class BasicCondition;
  std::mutex mutex_;
};

/// Holds a mutex in a scope; `unlock` gives it away for a part of the scope.
class PSRING_THREAD_SAFETY(scoped_lockable) MutexLock {
 public:
  explicit MutexLock(Mutex& mutex) PSRING_THREAD_SAFETY(acquire_capability(mutex)) : lock_(mutex.mutex_) {}
  ~MutexLock() PSRING_THREAD_SAFETY(release_capability()) = default;
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

  void lock() PSRING_THREAD_SAFETY(acquire_capability()) { lock_.lock(); }
  void unlock() PSRING_THREAD_SAFETY(release_capability()) { lock_.unlock(); }

 private:
  std::unique_lock<std::mutex> lock_;
};

/// A condition variable. Its waits take the mutex, which the caller holds, and then what those of the standard take. A
/// predicate begins with Mutex::assert_held.
template <class Variable>
class BasicCondition {
 public:
  void notify_one() noexcept { variable_.notify_one(); }
  void notify_all() noexcept { variable_.notify_all(); }
  template <class... More>
  auto wait(Mutex& mutex, More&&... more) PSRING_REQUIRES(mutex) {
    return variable_.wait(Held(mutex).lock, std::forward<More>(more)...);
  }
  template <class... More>
  auto wait_for(Mutex& mutex, More&&... more) PSRING_REQUIRES(mutex) {
    return variable_.wait_for(Held(mutex).lock, std::forward<More>(more)...);
  }
  template <class... More>
  auto wait_until(Mutex& mutex, More&&... more) PSRING_REQUIRES(mutex) {
    return variable_.wait_until(Held(mutex).lock, std::forward<More>(more)...);
  }

 private:
  /// The lock that the standard asks for. The caller still has the mutex afterwards, also after an exception.
  struct Held {
    explicit Held(Mutex& mutex) : own(mutex.mutex_, std::adopt_lock) {}
    ~Held() { own.release(); }
    std::unique_lock<std::mutex> own;
    std::unique_lock<std::mutex>& lock = own;
  };

  Variable variable_;
};

using Condition = BasicCondition<std::condition_variable>;
/// Its waits take a std::stop_token, too.
using StoppableCondition = BasicCondition<std::condition_variable_any>;

}  // namespace psring
