#include <algorithm>

#include <psring/bench/predict/served_outbox.h>
#include <psring/worker/servers/ps_client.h>

namespace psring::bench {

ServedOutbox::ServedOutbox(ServedCards& cards, const ServedPlaces& places, std::size_t place,
                           const std::vector<double>& windows)
    : cards_(cards), place_(place), to_servers_(places.is_worker(place)), is_changed_(cards.places()) {
  for (std::size_t to = 0; to < cards.places(); ++to) windows_.push_back(cards.window_bytes(place, to));
  for (std::size_t server = 0; server < windows.size(); ++server) {
    std::size_t& window = windows_[cards.place_of_server(server)];
    window = static_cast<std::size_t>(windows[server] * static_cast<double>(window));
  }
  if (!to_servers_) return;
  for (std::size_t server = places.workers(); server < places.count(); ++server)
    if (places.process_of(server) == places.process_of(place)) own_server_ = server;
  if (own_server_)
    windows_[*own_server_] =
        *std::min_element(windows_.begin() + static_cast<std::ptrdiff_t>(places.workers()), windows_.end());
}

void ServedOutbox::add(const ServedFrame& frame, std::size_t unit) {
  const std::size_t to = to_servers_ ? cards_.place_of_server(frame.server) : frame.worker;
  waiting_.add(to, {.has_payload = frame.bytes > 0, .unit = static_cast<std::uint32_t>(unit), .begin = frame.piece},
               frame);
  changed(to);
}

void ServedOutbox::flush(double now) {
  do {
    waiting_.flush_to(
        changed_, [&](std::size_t to) { return has_room(to); },
        [&](std::size_t to, const ServedFrame& frame) { give(to, frame, now); });
    for (const std::size_t to : changed_) is_changed_[to] = false;
    changed_.clear();
  } while (release(now));
}

/// Sends held frames. Returns whether there is more room for frames to the own server.
bool ServedOutbox::release(double now) {
  if (held_.empty()) return false;
  std::uint64_t in_flight = 0;
  for (std::size_t to = 0; to < cards_.places(); ++to) in_flight += cards_.in_flight_bytes(place_, to);
  const bool released = held_.flush(in_flight, windows_[*own_server_],
                                    [&](const ServedFrame& frame) { cards_.send(frame, to_servers_, now); });
  if (released) changed(*own_server_);
  return released;
}

bool ServedOutbox::has_room(std::size_t to) const {
  return (to == own_server_ ? held_.bytes() : cards_.in_flight_bytes(place_, to)) < windows_[to];
}

void ServedOutbox::give(std::size_t to, const ServedFrame& frame, double now) {
  const auto bytes = static_cast<std::size_t>(frame.bytes);
  if (to == own_server_ && bytes > 0) return held_.hold(frame, bytes);
  held_.pass(bytes);
  cards_.send(frame, to_servers_, now);
}

std::vector<ServedOutbox> make_served_outboxes(const TimedJob& job, const ServedPlaces& places, ServedCards& cards) {
  const std::vector<double> all = worker::window_weights(job.work.layout.weights);
  std::vector<double> windows;
  for (std::size_t server = 0; server < places.servers() && !all.empty(); ++server)
    windows.push_back(all[places.rank_of(server)]);
  std::vector<ServedOutbox> outboxes;
  for (std::size_t place = 0; place < places.count(); ++place)
    outboxes.emplace_back(cards, places, place, places.is_worker(place) ? windows : std::vector<double>());
  return outboxes;
}

}  // namespace psring::bench
