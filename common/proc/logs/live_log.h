#pragma once

#include <atomic>
#include <cstdint>
#include <thread>

#include <psring/common/base/events/events.h>
#include <psring/common/base/system/mutex.h>
#include <psring/common/base/system/shared_cell.h>

namespace psring {

class Membership;

/// Reports a role's present activity to the coordinator once a second, for live/<role>-<rank>.json
/// (docs/guide/live.md). A thread of its own sends the statuses, so training never waits. A status is dropped if the
/// previous one is still in flight.
class LiveLog final : public ReportListener {
 public:
  /// REQUIRES: the membership outlives it, and has joined.
  explicit LiveLog(Membership& member);
  LiveLog(const LiveLog&) = delete;
  LiveLog& operator=(const LiveLog&) = delete;

  /// Listens to the reports, and samples the present activity once a second.
  void follow(Events& events);
  void on_step(const StepReport& report) override;
  void on_evaluation(const Evaluation& /*evaluation*/) override {}
  /// For a server: the version of its parameters.
  void set_updates(std::uint64_t version) { updates_ = version; }
  /// For a server with tables: the number of rows that it has.
  void set_rows(std::uint64_t rows) { rows_ = rows; }
  /// Sends the last status, and ends the thread. Call it before the link is flushed.
  void finish();

 private:
  /// Sums over the steps that a worker has made.
  struct Totals {
    Nanoseconds duration{0};
    Nanoseconds exposed{0};
    std::uint64_t samples = 0;
  };

  void run(const std::stop_token& stop);
  void send(bool is_last);

  Membership& member_;
  static constexpr std::uint64_t kNoTables = UINT64_MAX;
  std::atomic<std::uint64_t> updates_ = 0;
  std::atomic<std::uint64_t> rows_ = kNoTables;

  SharedCell<Present> present_;
  Totals totals_;  ///< of the thread that trains
  SharedCell<Totals> shown_totals_;

  Mutex mutex_;
  StoppableCondition stopped_;
  std::jthread thread_;  ///< the last member: it ends before the others
};

}  // namespace psring
