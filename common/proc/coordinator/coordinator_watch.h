#pragma once

#include <cstdint>
#include <optional>

#include <psring/common/base/clock.h>

namespace psring::net {

/// A member's watch over the coordinator, as a pure state machine in time: when a heartbeat is due, when the
/// coordinator counts as silent, and how long a lost coordinator is waited for.
///
/// Before the member has joined, only the join deadline counts. Afterwards the coordinator is silent when no message
/// came for the heartbeat timeout. If the coordinator may come back (patience > 0), the member connects again and waits
/// for it: the coordinator is `away`. Time in which this process itself stood still does not count as silence.
class CoordinatorWatch {
 public:
  struct Times {
    Nanoseconds interval{};  ///< between heartbeats
    Nanoseconds timeout{};   ///< the silence after which the coordinator counts as silent
    Nanoseconds patience{};  ///< for a coordinator that was lost; 0: it does not come back
  };
  enum class Verdict : std::uint8_t {
    fine,
    not_joined,     ///< no coordinator answered before the join deadline
    silent,         ///< the coordinator has just become silent
    silent_away,    ///< the same, while it was away already
    did_not_return  ///< the coordinator was away for longer than the patience
  };

  explicit CoordinatorWatch(Moment join_deadline) : join_deadline_(join_deadline) {}

  bool joined() const { return times_.has_value(); }
  bool silent() const { return silent_; }
  bool away() const { return away_until_.has_value(); }
  /// The time since the last message.
  Nanoseconds silence(Moment now) const { return now - heard_; }

  /// The coordinator answers, but lets the member wait.
  void extend_join(Moment deadline) { join_deadline_ = deadline; }
  /// The coordinator has welcomed the member.
  void join(const Times& times, Moment now);
  /// A message arrived. Returns true if the coordinator was away and has come back.
  bool hear(Moment now);
  /// The connection was lost: the coordinator is away, from the first such call on. REQUIRES: joined().
  void lose_connection(Moment now);

  /// The member sleeps until the returned moment, at the latest.
  Moment next_deadline() const;
  /// The member slept until `planned`, and wakes at `now`.
  void wake(Moment planned, Moment now);
  Verdict look(Moment now);

  /// The next heartbeat is due at once.
  void request_heartbeat() { heartbeat_now_ = true; }
  /// Returns true if a heartbeat is due, and then counts it as sent.
  bool take_heartbeat(Moment now);
  /// The coordinator has answered a heartbeat. The first heartbeats follow each other at once, for a good clock offset.
  void hear_answer(Moment now);

 private:
  static constexpr int kQuickHeartbeats = 8;

  Moment join_deadline_;
  std::optional<Times> times_;        ///< constant once the member has joined
  std::optional<Moment> away_until_;  ///< when the patience ends
  bool silent_ = false;
  bool heartbeat_now_ = false;
  int answers_ = 0;
  Moment heard_;
  Moment woken_;
  Moment next_heartbeat_;
};

}  // namespace psring::net
