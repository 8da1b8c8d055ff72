#include <algorithm>
#include <utility>

#include <psring/common/proc/coordinator/coordinator_watch.h>

namespace psring::net {

void CoordinatorWatch::join(const Times& times, Moment now) {
  times_ = times;
  next_heartbeat_ = now;
}

bool CoordinatorWatch::hear(Moment now) {
  const bool was_away = std::exchange(away_until_, std::nullopt).has_value();
  if (was_away) {
    next_heartbeat_ = now;
    silent_ = false;
  }
  heard_ = now;
  return was_away;
}

void CoordinatorWatch::lose_connection(Moment now) {
  if (!away_until_) away_until_ = now + times_->patience;
}

Moment CoordinatorWatch::next_deadline() const {
  if (!joined()) return join_deadline_;
  const Moment silence = heard_ + times_->timeout;
  if (away()) return silent_ ? *away_until_ : std::min(*away_until_, silence);
  return std::min(next_heartbeat_, silence);
}

void CoordinatorWatch::wake(Moment planned, Moment now) {
  if (joined() && now - planned > times_->timeout / 2) heard_ = now;
  woken_ = now;
}

CoordinatorWatch::Verdict CoordinatorWatch::look(Moment now) {
  if (!joined()) return now >= join_deadline_ ? Verdict::not_joined : Verdict::fine;
  if (now - woken_ > times_->timeout / 2) heard_ = now;  // this process stood still since it woke
  if (away() && now >= *away_until_) return Verdict::did_not_return;
  if ((away() && silent_) || silence(now) < times_->timeout) return Verdict::fine;
  silent_ = true;
  return away() ? Verdict::silent_away : Verdict::silent;
}

bool CoordinatorWatch::take_heartbeat(Moment now) {
  if (!joined() || away() || (!heartbeat_now_ && now < next_heartbeat_)) return false;
  heartbeat_now_ = false;
  next_heartbeat_ = now + times_->interval;
  return true;
}

void CoordinatorWatch::hear_answer(Moment now) {
  if (++answers_ < kQuickHeartbeats) next_heartbeat_ = now;
}

}  // namespace psring::net
