#pragma once

#include <cstddef>
#include <cstdint>
#include <queue>
#include <span>
#include <vector>

namespace psring::bench {

/// One stage of a transfer: the time that it takes at a station, which is a network card in one direction, or a server.
struct Leg {
  std::size_t station = 0;
  double service_s = 0;  ///< time for which the station is occupied
  /// True: the leg can begin `after_s` after the leg before has begun (cut-through). False: after that leg's end.
  bool streams = false;
  double after_s = 0;  ///< may be negative if other senders' messages arrive earlier
  double alone_s = 0;  ///< shortest time from the leg's arrival to its end; other legs fill the gaps in its service
  double drain_s = 0;  ///< time from the end of the service to the leg's end
  double tail_s = 0;   ///< shortest time from the end of the leg before to this leg's end
  /// The station serves such legs at the same time, because their messages take turns: each at an equal rate, but none
  /// faster than it is alone.
  bool takes_turns = false;
};

/// Stations with one queue each, first come first served unless legs take turns, through which transfers pass leg by
/// leg. REQUIRES: at one station, either all legs take turns or none. The state of one representative worker's
/// communication in virtual time; exact to the arithmetic, without threads or randomness.
class Stations {
 public:
  using Ticket = std::size_t;

  explicit Stations(std::size_t count) : free_(count, 0), busy_(count, 0), turns_(count) {}

  static constexpr Ticket kNone = static_cast<Ticket>(-1);

  /// A transfer whose first leg can begin at `ready_s`, and after the transfer `after` is complete. A leg of zero
  /// service takes no station. REQUIRES: one leg at least.
  Ticket submit(double ready_s, std::vector<Leg> legs, Ticket after = kNone);
  /// Returns the time at which the transfer is complete. Transfers that are submitted later must not be ready earlier.
  double end_of(Ticket ticket);
  /// Time for which the station has been occupied.
  double busy(std::size_t station) const { return busy_[station]; }
  std::size_t count() const { return free_.size(); }

 private:
  struct Transfer {
    std::vector<Leg> legs;
    std::size_t next = 0;
    double begin_s = 0;  ///< of the leg before
    double end_s = 0;
    bool done = false;
    std::vector<Ticket> followers = {};  ///< transfers that begin after this one
  };
  /// A transfer arrives at its next station; or, without a ticket, a leg that takes turns ends at the station.
  struct Arrival {
    double at_s = 0;
    std::uint64_t order = 0;
    Ticket ticket = 0;
    std::size_t station = 0;
    std::uint64_t version = 0;  ///< of the turns
    bool operator>(const Arrival& other) const { return at_s != other.at_s ? at_s > other.at_s : order > other.order; }
  };
  /// The legs that take turns at a station.
  struct Turns {
    struct Active {
      Ticket ticket = 0;
      double arrived_s = 0;
      double left_s = 0;  ///< of the service
      double most = 1;    ///< rate, relative to the station's
      double rate = 1;
    };
    std::vector<Active> active;
    double at_s = 0;            ///< the moment to which `left_s` belongs
    std::uint64_t version = 0;  ///< of the rates
  };

  void start(Ticket ticket);
  void arrive(Ticket ticket, double at_s) { arrivals_.push({at_s, order_++, ticket}); }
  void serve_first();
  void take_turn(const Arrival& arrival, const Leg& leg);
  void advance_turns(std::size_t station, double at_s);
  void share_turns(std::size_t station);
  void end_turns(const Arrival& event);
  /// A leg ends.
  void leave(Ticket ticket);

  std::vector<double> free_;  ///< by station: when its queue is empty
  std::vector<double> busy_;
  std::vector<Turns> turns_;
  std::vector<Transfer> transfers_;
  std::priority_queue<Arrival, std::vector<Arrival>, std::greater<>> arrivals_;
  std::uint64_t order_ = 0;
};

}  // namespace psring::bench
