#include <algorithm>
#include <utility>

#include <psring/common/proc/control/control_outbox.h>

namespace psring::net {

void ControlOutbox::send(Bytes message) {
  if (!closed_) outgoing_.push_back(std::move(message));
}

void ControlOutbox::send_standing(Bytes message) {
  standing_.push_back(message);
  send(std::move(message));
}

void ControlOutbox::send_surely(Bytes message) {
  if (repeats_) {
    unacknowledged_.push_back(message);
    ++sent_;
  }
  send(std::move(message));
}

std::vector<ControlOutbox::Bytes> ControlOutbox::take() { return std::exchange(outgoing_, {}); }

std::uint64_t ControlOutbox::add_heartbeat() {
  heartbeats_.push_back({++last_heartbeat_, sent_});
  return last_heartbeat_;
}

void ControlOutbox::acknowledge(std::uint64_t heartbeat) {
  acknowledged_ = std::max(acknowledged_, heartbeat);
  for (; !heartbeats_.empty() && heartbeats_.front().number <= heartbeat; heartbeats_.pop_front()) {
    const std::uint64_t first = sent_ - unacknowledged_.size();
    const std::uint64_t arrived = std::max(heartbeats_.front().sent, first) - first;
    unacknowledged_.erase(unacknowledged_.begin(), unacknowledged_.begin() + static_cast<std::ptrdiff_t>(arrived));
  }
}

void ControlOutbox::reconnect(Bytes hello, bool in_epoch) {
  outgoing_.clear();
  heartbeats_.clear();
  outgoing_.push_back(std::move(hello));
  if (in_epoch) outgoing_.insert(outgoing_.end(), standing_.begin(), standing_.end());
  outgoing_.insert(outgoing_.end(), unacknowledged_.begin(), unacknowledged_.end());
}

}  // namespace psring::net
