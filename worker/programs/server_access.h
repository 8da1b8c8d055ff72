#pragma once

#include <atomic>
#include <functional>
#include <optional>

#include <psring/common/base/clock.h>
#include <psring/common/base/layout.h>
#include <psring/common/base/system/mutex.h>
#include <psring/common/base/text/error.h>
#include <psring/common/device/arena.h>
#include <psring/common/proc/role.h>
#include <psring/worker/servers/ps_client.h>

namespace psring::worker {

/// A worker's client of the job's servers, for several threads. A thread that waits for the servers under the lock
/// makes way for a thread that wants the lock. The first error that ends the job is latched: later calls throw it.
class ServerAccess {
 public:
  /// The client's options for memory in the arena, with the job's timeout.
  static PsClient::Options options(Membership& member, Arena& arena);

  /// REQUIRES: the links to all servers are open, and member and arena outlive this.
  ServerAccess(Membership& member, Layout layout, PsClient::Options options);

  /// REQUIRES: the caller is inside `locked`, or reads what never changes.
  PsClient& client() PSRING_UNCHECKED { return client_; }

  /// Calls `body` under the lock. Latches its error, unless that is a usage error.
  template <class Body>
  auto locked(Body body) {
    if (++entering_ == 1) member_.links().transport().wake();
    const MutexLock lock(mutex_);
    --entering_;
    entered_.notify_one();
    if (error_) throw Error(*error_);
    try {
      return body();
    } catch (const Error& error) {
      if (error.kind() == ErrorKind::usage) throw;
      latch(error);
    }
  }
  /// Waits until `done`, which is called under the lock, or until the moment; returns whether it is done.
  bool wait_until(const std::function<bool()>& done, Moment until);

 private:
  [[noreturn]] void latch(const Error& error) PSRING_REQUIRES(mutex_);

  Membership& member_;
  std::atomic<unsigned> entering_{0};  ///< threads that want the lock
  Mutex mutex_;
  Condition entered_;
  std::optional<Error> error_ PSRING_GUARDED_BY(mutex_);
  PsClient client_ PSRING_GUARDED_BY(mutex_);
};

}  // namespace psring::worker
