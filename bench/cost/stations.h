#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <queue>
#include <utility>
#include <vector>

namespace psring::bench {

/// A message of a collective, at a rank that stands for all: every rank sends the same frames at the same times, so
/// that a frame arrives here when the same frame of this rank arrives at its receiver.
struct TimedFrame {
  double service_s = 0;  ///< time for which the frame occupies the card
  double latency_s = 0;  ///< from the end of the service until the receiver can use the frame
  /// The frames that may leave once this one has arrived: [first, first + count).
  std::size_t first = 0;
  std::size_t count = 0;
};

/// The frames of a collective, in the order in which they leave if nothing else uses the card.
struct TimedFrames {
  std::vector<TimedFrame> frames;
  std::size_t at_once = 0;  ///< number of frames that wait for no arrival: the first ones
  double service_s = 0;     ///< of all frames
  double later_s = 0;       ///< by which the collective ends after its last frame; negative: before
  /// From the first frame's departure until all have arrived, and until all have left, if nothing else uses the card.
  /// 0: not known.
  double alone_s = 0;
  double carried_s = 0;
};

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
  /// The leg begins when the worker calls the group that makes the transfer, or waits in it, after the leg before has
  /// ended: stages of a hierarchical collective. False: at once.
  bool waits_for_call = false;
  /// Messages that queue at the station one by one, so that those of several legs mix; null: the leg queues as a whole.
  /// With frames, the other times are not used.
  std::shared_ptr<const TimedFrames> frames = nullptr;
};

/// The legs of a transfer, shared by all transfers that are alike.
using Legs = std::shared_ptr<const std::vector<Leg>>;

/// Stations with one queue each, first come first served, through which transfers pass leg by leg. The state of one
/// representative worker's communication in virtual time; exact to the arithmetic, without threads or randomness.
class Stations {
 public:
  using Ticket = std::size_t;

  explicit Stations(std::size_t count) : free_(count, 0), busy_(count, 0) {}

  static constexpr Ticket kNone = static_cast<Ticket>(-1);

  /// A transfer whose first leg can begin at `ready_s`, and after the transfer `after` is complete. A leg of zero
  /// service takes no station. REQUIRES: one leg at least.
  Ticket submit(double ready_s, Legs legs, Ticket after = kNone);
  Ticket submit(double ready_s, std::vector<Leg> legs, Ticket after = kNone) {
    return submit(ready_s, std::make_shared<const std::vector<Leg>>(std::move(legs)), after);
  }
  /// Returns the time at which the transfer is complete, if the worker waits for it from `since_s` on. Transfers that
  /// are submitted later must not be ready earlier.
  double end_of(Ticket ticket, double since_s = 0);
  /// Returns true if the transfer is complete at this time. The worker calls, but does not wait.
  bool done_by(Ticket ticket, double now_s);
  /// Time for which the station has been occupied.
  double busy(std::size_t station) const { return busy_[station]; }
  /// The time at which the station has served all that has come so far.
  double free_at(std::size_t station) const { return free_[station]; }
  std::size_t count() const { return free_.size(); }

 private:
  /// A transfer arrives at its next station; or a frame of its present leg is ready to leave.
  struct Arrival {
    double at_s = 0;
    std::uint64_t order = 0;
    std::size_t frame = kNoFrame;
    bool waits_for_call = false;
    bool operator<(const Arrival& other) const { return at_s != other.at_s ? at_s < other.at_s : order < other.order; }
  };
  static constexpr std::size_t kNoFrame = static_cast<std::size_t>(-1);
  /// The arrivals of one transfer, first ones first. Most of them come in their order.
  class ArrivalQueue {
   public:
    bool empty() const { return begin_ == list_.size(); }
    const Arrival& front() const { return list_[begin_]; }
    void push(const Arrival& arrival);
    Arrival pop();
    void clear() { list_ = {}, begin_ = 0; }

   private:
    std::vector<Arrival> list_;
    std::size_t begin_ = 0;
  };
  struct Transfer {
    Legs legs;
    std::size_t next = 0;
    std::size_t frames_left = 0;  ///< of the present leg
    double begin_s = 0;           ///< of the leg before
    double end_s = 0;
    bool done = false;
    ArrivalQueue arrivals = {};
    std::vector<Ticket> followers = {};  ///< transfers that begin after this one
  };
  /// The first arrival of a transfer that is not served now.
  struct Next {
    Arrival arrival;
    Ticket ticket = 0;
    bool operator>(const Next& other) const { return other.arrival < arrival; }
  };

  void start(Ticket ticket);
  /// Serves the transfer that is first, as long as it is, and not after `until_s`.
  void serve_first(double until_s);
  void serve(Ticket ticket, const Arrival& arrival);
  void serve_leg(Ticket ticket, double at_s);
  void serve_frame(Ticket ticket, double at_s, std::size_t frame);
  void serve_alone(Ticket ticket, const Leg& leg, double at_s);
  /// Occupies the station as soon as it is free. Returns when the service begins.
  double occupy(std::size_t station, double at_s, double service_s);
  /// A leg ends.
  void leave(Ticket ticket);

  std::vector<double> calls_;  ///< when the worker called: ascending
  std::vector<double> free_;   ///< by station: when its queue is empty
  std::vector<double> busy_;
  std::vector<Transfer> transfers_;
  std::priority_queue<Next, std::vector<Next>, std::greater<>> others_;  ///< transfers that have arrivals
  bool waits_ = false;  ///< the worker waits until a transfer is complete: it submits nothing meanwhile
  std::uint64_t order_ = 0;
};

}  // namespace psring::bench
