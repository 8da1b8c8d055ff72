#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include <psring/common/base/clock.h>
#include <psring/common/base/layout.h>
#include <psring/common/base/system/mutex.h>
#include <psring/common/device/arena.h>
#include <psring/common/device/buffer.h>
#include <psring/common/proc/role.h>
#include <psring/worker/exchange/tables/unique_keys.h>
#include <psring/worker/programs/fetched_rows.h>
#include <psring/worker/programs/server_access.h>
#include <psring/worker/programs/unpaired_rows.h>

namespace psring::worker {

/// The tables of rows that a job's servers own, as one worker of a user's program sees them. Safe for several threads.
/// The first error is latched: later calls throw it. A step ends with end_step, which pushes the gradients that were
/// added since the last one, whatever rows they belong to. Under bsp it is a step of all workers, under asp of this
/// one.
class TableClient {
 public:
  /// Bytes of payload.
  struct Moved {
    std::uint64_t sent = 0;
    std::uint64_t received = 0;
  };

  /// Throws usage if an option of the job has no effect on tables. `arena` and `member` outlive it, and the links to
  /// all servers are open.
  TableClient(Membership& member, Arena& arena);

  /// Declares a table, and returns its number. Throws usage after `start`, and where servers would refuse it.
  std::size_t add(TableLayout layout);
  /// Agrees with the servers on the tables; returns the step that the job begins with.
  std::uint64_t start();
  /// Starts to bring the rows of these keys, as they are after `version` updates: that of the current step or the next
  /// one.
  std::shared_ptr<FetchedRows> fetch(std::size_t table, std::span<const std::uint64_t> keys, std::uint64_t version);
  bool wait(const FetchedRows& rows, Moment until);
  /// Adds the gradients of bags to those of their rows, in the order of the lookups.
  void add(const std::shared_ptr<FetchedRows>& rows, const Bags& bags, std::span<const float> gradients);
  /// Adds a gradient to each row; rows whose gradient is all zeros are left out.
  void add(const std::shared_ptr<FetchedRows>& rows, std::span<const float> gradients);
  /// Adds gradients to the rows of keys, which may repeat and need not have been fetched.
  void add(std::size_t table, std::span<const std::uint64_t> keys, std::span<const float> gradients);
  /// Drops the gradients that were added since the last step.
  void drop();
  /// Pushes them, and begins the next step. Throws usage if `wait_idle` would wait.
  void end_step(double lr);
  /// Waits until the rows of the current step have come and the servers have taken what was pushed.
  bool wait_idle(Moment until);
  /// The same, for a worker that leaves; true if the tables were never started.
  bool settle(Moment until) { return !started_ || wait_idle(until); }
  /// Gives rows values, and fresh state; wait_idle waits for the servers. Throws usage except at worker 0, and if
  /// `wait_idle` would wait.
  void assign(std::size_t table, std::span<const std::uint64_t> keys, std::span<const float> values);
  /// Lists rows that were trained or assigned, at most keys.size(), from *cursor on, which begins as 0 and moves on.
  /// Sets their number; 0: there are no more. Returns false if the moment comes first; the call may be repeated.
  bool list(std::size_t table, std::uint64_t& cursor, std::span<std::uint64_t> keys, std::span<float> values,
            std::size_t& count, Moment until);
  /// The bytes of fetches and pushes so far, as the links have counted them, and by formula.
  Moved moved() const;
  Moved predicted();

 private:
  struct Table {
    std::deque<std::shared_ptr<FetchedRows>>
        lanes[2];                                      ///< fetches by the version's parity; the first one is on its way
    std::vector<std::shared_ptr<FetchedRows>> graded;  ///< with gradients of the current step
    std::vector<Buffer> sends;                         ///< payloads that servers may read
    std::optional<std::uint64_t> list_from;            ///< the awaited list's first key
    std::size_t list_most = 0;                         ///< of its rows
    bool listed = false;                               ///< the last list has ended
    std::atomic<bool> listing{false};                  ///< a call of `list` is under way
  };
  /// Different keys, hashed and ascending, with their gradients. They lie in `memory`, or in the rows of a batch.
  struct Merged {
    std::span<const std::uint64_t> keys;
    std::span<const float> gradients;
    struct {
      std::vector<std::uint64_t> keys;
      std::vector<float> gradients;
    } memory = {};
  };

  void check_started() const;
  std::shared_ptr<FetchedRows> make_rows(std::size_t table, std::span<const std::uint64_t> keys, std::uint64_t version);
  UniqueKeys& unique(std::size_t keys);
  // These need the servers' lock.
  void advance(std::size_t table);
  void clear();
  bool idle();
  Merged merge(std::size_t table);
  std::span<float> gradients_of(const std::shared_ptr<FetchedRows>& rows);
  RowFrame piece_of(std::size_t table, std::uint64_t hashed) const;

  Membership& member_;
  Arena& arena_;
  Layout layout_;
  std::optional<ServerAccess> servers_;  ///< from `start` on
  std::optional<UnpairedRows> rows_;     ///< as well
  Mutex opening_;                        ///< guards `add` of tables and `start`
  std::atomic<bool> started_{false};     ///< `start` has returned
  // Guarded by the servers' lock.
  std::uint64_t step_ = 0;
  std::vector<Table> tables_;
  std::optional<UniqueKeys> unique_;
  std::size_t unique_most_ = 0;
  Moved predicted_;
};

}  // namespace psring::worker
