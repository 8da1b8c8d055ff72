#include <algorithm>
#include <chrono>
#include <iterator>
#include <optional>
#include <utility>

#include <psring/common/base/json.h>
#include <psring/common/proc/live_log.h>
#include <psring/common/proc/role.h>

namespace psring {
namespace {

constexpr std::size_t kMostCounts = 8192;  ///< keeps a status far below the most bytes of a message

/// A list of operation, peer, number of messages and bytes for all that the process has sent.
Json sent_of(const ByteLedger& bytes) {
  Json list = Json::array();
  for (const auto& [key, count] : bytes.snapshot()) {
    if (key.direction != ByteLedger::Direction::sent || list.size() >= kMostCounts) continue;
    Json entry = Json::array();
    entry.push_back(key.operation);
    entry.push_back(key.peer);
    entry.push_back(count.messages);
    entry.push_back(key.operation == "retransmitted" ? count.framing : count.payload);
    list.push_back(std::move(entry));
  }
  return list;
}

}  // namespace

LiveLog::LiveLog(Membership& member) : member_(member) {
  thread_ = std::jthread([this](const std::stop_token& stop) { run(stop); });
}

void LiveLog::on_begin(const Event& begun) {
  const auto* const activity = std::get_if<Activity>(&begun.what);
  if (activity == nullptr) return;
  const std::scoped_lock lock(events_mutex_);
  open_.push_back({activity->name, begun.start, activity->peer, activity->waits != Activity::Waits::no});
  step_ = begun.step;
}

void LiveLog::on_event(const Event& event) {
  const std::scoped_lock lock(events_mutex_);
  if (const auto* const activity = std::get_if<Activity>(&event.what)) {
    const auto found = std::find_if(open_.rbegin(), open_.rend(), [&](const Open& open) {
      return open.name == activity->name && open.start == event.start;
    });
    if (found == open_.rend()) return;
    open_.erase(std::next(found).base());
    if (open_.empty()) busy_ += event.duration;
  } else if (const auto* const report = std::get_if<StepReport>(&event.what)) {
    steps_time_ += report->duration;
    exposed_ += report->exposed;
    samples_ += report->samples;
  }
}

void LiveLog::finish() {
  if (!thread_.joinable()) return;
  thread_.request_stop();
  thread_.join();
  send(true);
}

void LiveLog::run(const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  while (!stopped_.wait_for(lock, stop, std::chrono::seconds(1), [&] { return stop.stop_requested(); })) send(false);
}

void LiveLog::send(bool is_last) {
  const Moment now = member_.clock().now();
  const net::Peer self = member_.self();
  const ByteLedger& bytes = member_.bytes();
  Json json = {{"role", to_string(self.role)},
               {"rank", self.rank},
               {"time_s", seconds(now.time_since_epoch() + member_.link().clock_offset())},
               {"bytes_sent", bytes.sent_bytes()},
               {"bytes_received", bytes.received_bytes()},
               {"sent", sent_of(bytes)}};
  if (self.role == net::Role::server) json["updates"] = updates_.load();
  const std::scoped_lock lock(events_mutex_);
  json["step"] = step_;
  json["busy_s"] = seconds(busy_ + (open_.empty() ? Nanoseconds{0} : now - open_.front().start));
  json["waiting"] = nullptr;
  for (const Open& open : open_)
    if (!is_last && open.waits)
      json["waiting"] = {{"operation", open.name},
                         {"peer", open.peer.empty() ? Json() : Json(open.peer.text())},
                         {"since_s", seconds(now - open.start)}};
  if (self.role == net::Role::worker) {
    json["samples"] = samples_;
    json["training_s"] = seconds(steps_time_);
    json["waited_s"] = seconds(exposed_);
  }
  member_.link().status(json.dump(), is_last);
}

}  // namespace psring
