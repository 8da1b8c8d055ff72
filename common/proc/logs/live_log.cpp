#include <chrono>
#include <utility>

#include <psring/common/base/system/mutex.h>
#include <psring/common/base/text/json.h>
#include <psring/common/proc/logs/live_log.h>
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

void LiveLog::follow(Events& events) {
  events.listen(*this, Events::Wanted::reports);
  events.show_present(present_);
}

void LiveLog::on_step(const StepReport& report) {
  totals_.duration += report.duration;
  totals_.exposed += report.exposed;
  totals_.samples += report.samples;
  shown_totals_.write(totals_);
}

void LiveLog::finish() {
  if (!thread_.joinable()) return;
  thread_.request_stop();
  thread_.join();
  send(true);
}

void LiveLog::run(const std::stop_token& stop) {
  MutexLock lock(mutex_);
  while (!stopped_.wait_for(mutex_, stop, std::chrono::seconds(1), [&] { return stop.stop_requested(); })) send(false);
}

void LiveLog::send(bool is_last) {
  const Present present = present_.read();
  const Moment now = member_.clock().now();
  const net::Peer self = member_.self();
  const ByteLedger& bytes = member_.bytes();
  const bool is_busy = present.outermost_since != kNever;
  Json json = {{"role", to_string(self.role)},
               {"rank", self.rank},
               {"time_s", seconds(now.time_since_epoch() + member_.link().clock_offset())},
               {"step", present.step},
               {"bytes_sent", bytes.sent_bytes()},
               {"bytes_received", bytes.received_bytes()},
               {"sent", sent_of(bytes)},
               {"busy_s", seconds(present.busy + (is_busy ? now - present.outermost_since : Nanoseconds{0}))},
               {"waiting", nullptr}};
  if (const Present::Waiting& waiting = present.waiting; !is_last && !waiting.name.empty())
    json["waiting"] = {{"operation", waiting.name},
                       {"peer", waiting.peer.empty() ? Json() : Json(waiting.peer.text())},
                       {"since_s", seconds(now - waiting.since)}};
  if (self.role == net::Role::server) json["updates"] = updates_.load();
  if (const std::uint64_t rows = rows_; rows != kNoTables) json["rows"] = rows;
  if (self.role == net::Role::worker) {
    const Totals totals = shown_totals_.read();
    json["samples"] = totals.samples;
    json["training_s"] = seconds(totals.duration);
    json["waited_s"] = seconds(totals.exposed);
  }
  member_.link().status(json.dump(), is_last);
}

}  // namespace psring
