#include <algorithm>

#include <psring/bench/predict/served_cards.h>

namespace psring::bench {
namespace {

/// The system gives a process that wakes up its turn soon, however much work is waiting. The value was chosen with
/// scripts/plan-check.
constexpr double kTurnNs = 3e5;

}  // namespace

ServedCards::ServedCards(const TimedJob& job, const ServedPlaces& places, std::uint64_t seed)
    : job_(job),
      places_(places),
      is_in_order_(job.mesh.in_order || job.mesh.hosts <= 1),
      streams_(places.count() * (places.count() + 2)),
      in_flight_bytes_(places.count() * places.count()),
      window_between_(is_in_order_ ? net::window_bytes(places.between) : net::kWindowBytes),
      window_within_(net::window_bytes(places.within)),
      draws_(seed) {
  const std::size_t hosts = places.hosts + places.standalone;
  for (std::size_t host = 0; host < hosts; ++host) {
    const bool serves = host >= places.hosts;
    between_.push_back({.out = {.station = serves ? StepStation::server_card_out : StepStation::card_out},
                        .in = {.station = serves ? StepStation::server_card_in : StepStation::card_in},
                        .link = places.between});
  }
  for (std::size_t place = 0; place < places.count(); ++place)
    within_.push_back({.out = {}, .in = {}, .link = places.within});
  processors_.resize(hosts, {.station = StepStation::processors});
  worked_until_ns_.resize(places.count(), -1);
}

ServedCards::Card& ServedCards::card_of(std::size_t place, std::size_t other) {
  return on_one_host(place, other) ? within_[places_.process_of(place)] : between_[places_.host_of(place)];
}

std::size_t ServedCards::window_bytes(std::size_t from, std::size_t to) const {
  return on_one_host(from, to) ? window_within_ : window_between_;
}

double ServedCards::bytes_of(const Flight& flight) const {
  const double bytes = flight.frame.bytes + kHeaderBytes * flight.frame.headers;
  const bool to_server = places_.is_worker(flight.from);
  if (flight.frame.header.type == net::FrameType::message) return bytes / places_.stands_for(flight.to);
  return bytes *
         (to_server ? places_.bytes_factor(flight.from, flight.to) : places_.bytes_factor(flight.to, flight.from));
}

double ServedCards::occupy(Way& way, double ready_ns, double nanoseconds) {
  const double begin = std::max(way.free_ns, ready_ns);
  way.free_ns = begin + nanoseconds;
  way.busy_ns += nanoseconds;
  double& busiest = busiest_[static_cast<std::size_t>(way.station)];
  busiest = std::max(busiest, way.busy_ns);
  return begin;
}

void ServedCards::send(const ServedFrame& frame, double now) {
  std::uint32_t index = static_cast<std::uint32_t>(flights_.size());
  if (unused_.empty()) {
    flights_.emplace_back();
  } else {
    index = unused_.back();
    unused_.pop_back();
  }
  Flight& flight = flights_[index];
  flight = {.frame = frame, .from = places_.place_of(frame.header.sender()), .to = places_.place_of(frame.to)};
  if (places_.process_of(flight.from) == places_.process_of(flight.to)) return add(What::handles, index, now);
  in_flight(flight) += frame.bytes;
  std::list<std::uint32_t>& stream = streams_[stream_of(flight)];
  stream.push_back(index);
  if (stream.size() > 1) return;
  Way& way = card_of(flight.from, flight.to).out;
  way.turns.push_back(stream_of(flight));
  if (way.turns.size() == 1) add(What::departs, index, std::max(way.free_ns, now));
}

/// A card in order has one stream. The numbers of cards begin after those of the pairs of places.
std::size_t ServedCards::stream_of(const Flight& flight) const {
  const std::size_t places = places_.count();
  if (!in_order(flight)) return flight.from * places + flight.to;
  return places * places + (on_one_host(flight.from, flight.to) ? places_.process_of(flight.from)
                                                                : places + places_.host_of(flight.from));
}

/// The part of the frame that leaves in one turn. TCP has at least two segments of each stream in a card's queue, here
/// those of cards for 9,000 bytes; the least part only bounds the number of events.
double ServedCards::next_part(const Flight& flight) const {
  constexpr double kTurnBytes = 2e4;
  constexpr double kLeastPart = 1.0 / 8;
  if (in_order(flight)) return flight.left;
  const double part = std::max(kLeastPart, kTurnBytes / bytes_of(flight));
  return flight.left > 1.5 * part ? part : flight.left;
}

/// A part of a frame leaves, and then a part of the next stream's frame. Returns the frame.
std::uint32_t ServedCards::leave(std::uint32_t index, double now) {
  Card& card = card_of(flights_[index].from, flights_[index].to);
  const std::size_t turn = card.out.turns.front();
  card.out.turns.pop_front();
  std::list<std::uint32_t>& stream = streams_[turn];
  index = stream.front();
  Flight& flight = flights_[index];
  const double part = next_part(flight);
  occupy(card.out, now,
         whole_ns(part * places_.stands_for(flight.to) * bytes_of(flight) * 8 / card.link.bits_per_second));
  flight.left -= part;
  if (flight.left <= 0) {
    stream.pop_front();
    in_flight(flight) -= flight.frame.bytes;
  }
  if (!stream.empty()) card.out.turns.push_back(turn);
  if (!card.out.turns.empty()) add(What::departs, streams_[card.out.turns.front()].front(), card.out.free_ns);
  arrive(index, part, now);
  return index;
}

/// The receiver's card takes a part of the frame.
void ServedCards::arrive(std::uint32_t index, double part, double now) {
  Flight& flight = flights_[index];
  Card& card = card_of(flight.to, flight.from);
  const double service =
      whole_ns(part * places_.stands_for(flight.from) * bytes_of(flight) * 8 / card.link.bits_per_second);
  const MessageCosts& costs = job_.costs.exchange;
  double here = occupy(card.in, now + static_cast<double>(card.link.delay.count()), service) + service +
                whole_ns(costs.hop_s + flight.frame.bytes * costs.hop_s_per_byte);
  if (flight.left > 0) return;
  if (job_.costs.processors > 0) {
    // Half of a message's work is its sender's.
    const double each = 1e9 * (flight.frame.headers * costs.work_s + flight.frame.bytes * costs.work_s_per_byte) / 2;
    // The sender's link sleeps until the card is free, the receiver's until the frame is there, and then the receiver.
    const double wake = 1e9 * costs.wake_s / 3;
    here = std::max({here, work_on_messages(flight.from, now, places_.stands_for(flight.to), each, wake),
                     work_on_messages(flight.to, now, places_.stands_for(flight.from), each, 2 * wake)});
  }
  add(What::handles, index, here);
}

/// With one host for all, a place's work is also that of all the processes that the place stands for.
double ServedCards::work(std::size_t place, double now, double nanoseconds) {
  if (job_.costs.processors <= 0) return now;
  const double all = job_.costs.one_host ? nanoseconds * places_.stands_for(place) : nanoseconds;
  const double each = std::round(all / job_.costs.processors);
  return occupy(processors_[processors_of(place)], now, each) + each;
}

double ServedCards::turn_ns(std::size_t place, double now) const {
  if (job_.costs.processors <= 0) return 0;
  return std::clamp(processors_[processors_of(place)].free_ns - now, 0.0, kTurnNs);
}

/// A process finds messages without another sleep if they come while it works, or waits for a processor: the sooner
/// after the one before, the more of them.
double ServedCards::work_on_messages(std::size_t place, double now, double processes, double each_ns, double wake_ns) {
  double& worked_until_ns = worked_until_ns_[place];
  const double turn_ns = std::clamp(processors_[processors_of(place)].free_ns - now, 1.0, kTurnNs);
  const double asleep = std::clamp((now - worked_until_ns) / turn_ns, 0.0, 1.0);
  const double own_ns = processes * (each_ns + asleep * wake_ns);
  worked_until_ns = std::max(worked_until_ns, now) + own_ns;
  return work(place, now, own_ns);
}

ServedCards::Event ServedCards::next() {
  Event event = events_.top();
  events_.pop();
  if (event.what == What::departs) event.index = leave(event.index, event.at_ns);
  return event;
}

void ServedCards::reset_busy() {
  for (std::vector<Card>* cards : {&between_, &within_})
    for (Card& card : *cards) card.out.busy_ns = card.in.busy_ns = 0;
  for (Way& processors : processors_) processors.busy_ns = 0;
  busiest_ = {};
}

}  // namespace psring::bench
