#include <psring/bench/cost/served_outbox.h>
#include <psring/worker/server_weights.h>

namespace psring::bench {

ServedOutbox::ServedOutbox(ServedCards& cards, std::size_t place, bool to_servers, const std::vector<double>& windows)
    : cards_(cards), place_(place), to_servers_(to_servers), is_changed_(cards.places()) {
  for (std::size_t to = 0; to < cards.places(); ++to) windows_.push_back(cards.window_bytes(place, to));
  for (std::size_t server = 0; server < windows.size(); ++server) {
    std::size_t& window = windows_[cards.place_of_server(server)];
    window = static_cast<std::size_t>(windows[server] * static_cast<double>(window));
  }
}

void ServedOutbox::add(const ServedFrame& frame, std::size_t unit) {
  const std::size_t to = to_servers_ ? cards_.place_of_server(frame.server) : frame.worker;
  waiting_.add(to, {.has_payload = frame.bytes > 0, .unit = static_cast<std::uint32_t>(unit), .begin = frame.piece},
               frame);
  changed(to);
}

void ServedOutbox::flush(double now) {
  waiting_.flush_to(
      changed_, [&](std::size_t to) { return cards_.in_flight_bytes(place_, to) < windows_[to]; },
      [&](std::size_t, const ServedFrame& frame) { cards_.send(frame, to_servers_, now); });
  for (const std::size_t to : changed_) is_changed_[to] = false;
  changed_.clear();
}

std::vector<ServedOutbox> make_served_outboxes(const TimedJob& job, const ServedPlaces& places, ServedCards& cards) {
  const std::vector<double> all = worker::window_weights(job.work.layout.weights);
  std::vector<double> windows;
  for (std::size_t server = 0; server < places.servers() && !all.empty(); ++server)
    windows.push_back(all[places.rank_of(server)]);
  std::vector<ServedOutbox> outboxes;
  for (std::size_t place = 0; place < places.count(); ++place) {
    const bool worker = places.is_worker(place);
    outboxes.emplace_back(cards, place, worker, worker ? windows : std::vector<double>());
  }
  return outboxes;
}

}  // namespace psring::bench
