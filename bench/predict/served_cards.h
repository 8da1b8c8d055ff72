#pragma once

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <list>
#include <queue>
#include <random>
#include <tuple>
#include <vector>

#include <psring/bench/predict/served_layout.h>

namespace psring::bench {

/// A message between a worker and a server, or (`message`) between two workers.
struct ServedFrame {
  net::FrameHeader header;
  net::Peer to;
  double bytes = 0;    ///< payload
  double headers = 1;  ///< the number of frames that carry it
};

/// Network cards and processors of all places, and the order of all that happens, in virtual time. A card in order
/// carries one frame after the other in each direction. Another one carries a part of a frame to each receiver in turn,
/// as TCP does, and its receiver takes the parts in order of arrival. An arrival begins a delay after the frame or its
/// part began to leave. Times are whole nanoseconds, as those of net::LinkShaper: equal ways of two frames then end at
/// the same moment, and not by chance one before the other.
class ServedCards {
 public:
  /// Returns whole nanoseconds.
  static double whole_ns(double seconds) { return std::round(seconds * 1e9); }
  enum class What : std::uint8_t { departs, handles, other };
  struct Event {
    double at_ns = 0;
    std::uint64_t order = 0;
    What what = What::other;
    std::uint32_t index = 0;  ///< of a frame, or the caller's number
    /// Messages come before the other events of their moment: a worker or server that wakes then finds them.
    bool operator>(const Event& other) const {
      return std::tuple(at_ns, what == What::other, order) >
             std::tuple(other.at_ns, other.what == What::other, other.order);
    }
  };

  /// `seed`: orders the events of one moment.
  ServedCards(const TimedJob& job, const ServedPlaces& places, std::uint64_t seed);

  void send(const ServedFrame& frame, double now);
  /// Has the caller called at that time, with the caller's number.
  void call(std::uint32_t number, double at_ns) { add(What::other, number, at_ns); }
  /// Draws a number in [0, 1).
  double draw() { return static_cast<double>(draws_() >> 11) * 0x1p-53; }
  bool idle() const { return events_.empty(); }
  /// Returns the next event: a frame that has begun to leave or that its receiver handles now, or a call.
  Event next();
  /// The place from which a frame leaves.
  std::size_t sender(std::uint32_t index) const { return flights_[index].from; }
  bool has_left(std::uint32_t index) const { return flights_[index].left <= 0; }
  /// Payload of one of the processes that `from` stands for to one of those of `to`, which waits for the card.
  std::size_t in_flight_bytes(std::size_t from, std::size_t to) const {
    return static_cast<std::size_t>(in_flight_bytes_[from * places_.count() + to]);
  }
  /// The window of the link between two places (net::window_bytes).
  std::size_t window_bytes(std::size_t from, std::size_t to) const;
  const ServedFrame& frame(std::uint32_t index) const { return flights_[index].frame; }
  void drop(std::uint32_t index) { unused_.push_back(index); }
  /// Work of a place's processors from this time on. Returns its end.
  double work(std::size_t place, double now, double nanoseconds);
  /// Work on messages, `each_ns` and, if the process sleeps, up to `wake_ns` for each of the processes that the place
  /// stands for. Returns its end.
  double work_on_messages(std::size_t place, double now, double processes, double each_ns, double wake_ns);

  /// The time that a process which wakes up now waits for a processor.
  double turn_ns(std::size_t place, double now) const;

  double busy_s(StepStation station) const { return busiest_[static_cast<std::size_t>(station)] * 1e-9; }
  /// Forgets how long stations were busy.
  void reset_busy();

 private:
  struct Way {
    double free_ns = 0;
    std::deque<std::size_t> turns = {};  ///< streams with frames that leave later, in the order of their turns
    double busy_ns = 0;
    StepStation station = StepStation::within;
  };
  struct Card {
    Way out;
    Way in;
    net::LinkSpec link;
  };
  struct Flight {
    ServedFrame frame;
    std::size_t from = 0;
    std::size_t to = 0;
    double left = 1;  ///< the part of it that has not left
  };
  void add(What what, std::uint32_t index, double at_ns) { events_.push({at_ns, draws_(), what, index}); }
  Card& card_of(std::size_t place, std::size_t other);
  bool on_one_host(std::size_t place, std::size_t other) const {
    return places_.host_of(place) == places_.host_of(other);
  }
  bool in_order(const Flight& flight) const { return on_one_host(flight.from, flight.to) || is_in_order_; }
  std::size_t stream_of(const Flight& flight) const;
  double next_part(const Flight& flight) const;
  double& in_flight(const Flight& flight) { return in_flight_bytes_[flight.from * places_.count() + flight.to]; }
  double occupy(Way& way, double ready_ns, double nanoseconds);
  void arrive(std::uint32_t index, double part, double now);
  std::uint32_t leave(std::uint32_t index, double now);
  double bytes_of(const Flight& flight) const;
  std::size_t processors_of(std::size_t place) const { return job_.costs.one_host ? 0 : places_.host_of(place); }

  const TimedJob& job_;
  const ServedPlaces& places_;
  const bool is_in_order_;     ///< of the cards between hosts
  std::vector<Card> between_;  ///< by host
  std::vector<Card> within_;   ///< by process
  std::vector<Way> processors_;
  std::vector<double> worked_until_ns_;            ///< by place: the end of its work on messages
  std::vector<std::list<std::uint32_t>> streams_;  ///< see stream_of: frames that leave in their order
  std::vector<Flight> flights_;
  std::vector<std::uint32_t> unused_;
  std::vector<double> in_flight_bytes_;  ///< by sender and receiver
  std::size_t window_between_;
  std::size_t window_within_;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  std::mt19937_64 draws_;
  std::array<double, static_cast<std::size_t>(StepStation::count)> busiest_{};
};

}  // namespace psring::bench
