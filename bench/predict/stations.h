#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <queue>
#include <tuple>
#include <utility>
#include <vector>

namespace psring::bench {

/// One moment of each of some workers of a host, which act alike but not at the same times. In seconds.
class Moments {
 public:
  static constexpr std::size_t kMost = 16;

  Moments() = default;
  /// The same moment for all.
  Moments(double at, std::size_t lanes) : lanes_(lanes) { at_.fill(at); }

  std::size_t lanes() const { return lanes_; }
  double operator[](std::size_t lane) const { return at_[lane]; }
  double& operator[](std::size_t lane) { return at_[lane]; }
  double last() const { return *std::max_element(at_.begin(), at_.begin() + static_cast<std::ptrdiff_t>(lanes_)); }
  Moments& operator+=(double seconds) {
    for (std::size_t lane = 0; lane < lanes_; ++lane) at_[lane] += seconds;
    return *this;
  }
  friend Moments operator+(Moments moments, double seconds) { return moments += seconds; }
  /// The later moment of each worker.
  friend Moments later(Moments a, const Moments& b) {
    for (std::size_t lane = 0; lane < a.lanes_; ++lane) a.at_[lane] = std::max(a.at_[lane], b.at_[lane]);
    return a;
  }

 private:
  std::array<double, kMost> at_{};
  std::size_t lanes_ = 1;
};

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
  double later_s = 0;       ///< by which the collective ends after its last frame; negative: before
};

/// The workers of a host that are members of one group: `size` of them, `stride` apart. `kind` says who sends frames to
/// whom, an equal share to each.
struct LaneGroup {
  std::size_t size = 1;
  std::size_t stride = 1;
  /// The first members own a part of the vector; the others none.
  std::size_t owners = 1;
  enum class Kind : std::uint8_t {
    between,  ///< owners send to their column on other hosts
    reduces,  ///< each member sends to the owners on its host
    gathers,  ///< owners send to each member on their host
  };
  Kind kind = Kind::between;

  std::size_t place_of(std::size_t lane) const { return lane / stride % size; }
  bool owns(std::size_t lane) const { return place_of(lane) < owners; }
  /// The member that is `distance` places further on.
  std::size_t further(std::size_t lane, std::size_t distance) const {
    const std::size_t place = place_of(lane);
    return lane - place * stride + (place + distance) % size * stride;
  }
};

/// The work for the frames of all ranks on the processors that the ranks share. A frame comes together with those of
/// the other ranks: its receiver waits for all work that came before, and for a part of the work of these frames. The
/// frame's own work is part of its latency.
struct FrameWork {
  std::size_t station = 0;
  double service_s = 0;  ///< for all frames of the leg; 0: the ranks share no processors
  double waits = 0;      ///< the part of a round's work that a frame waits for, on average: below 1/2
};

/// One stage of a transfer: the time that it takes at a station, which is a network card in one direction, or a server.
struct Leg {
  std::size_t station = 0;
  double service_s = 0;  ///< time for which the station is occupied
  bool streams = false;  ///< the leg can begin when the leg before has begun; else after that leg's end
  double alone_s = 0;    ///< shortest time from the leg's arrival to its end; other legs fill the gaps in its service
  double drain_s = 0;    ///< time from the end of the service to the leg's end
  /// The leg begins when the worker calls the group that makes the transfer, or waits in it, after the leg before has
  /// ended: stages of a hierarchical collective. False: at once.
  bool waits_for_call = false;
  /// Messages that queue at the station one by one, so that those of several legs mix; null: the leg queues as a whole.
  /// With frames, the other times are not used.
  std::shared_ptr<const TimedFrames> frames = nullptr;
  /// Which workers of the host send; for the workers that are played.
  LaneGroup lanes = {};
  /// Transfers with one `group` enter each of its gates in the order of their calls, as ring::HierProgress lets them
  /// enter a stage: a leg is behind the gate before it. 0: no group.
  std::size_t group = 0;
  enum class Gate : std::uint8_t { none, between, up, end, count };
  Gate gate = Gate::none;
  FrameWork work = {};  ///< of the frames
};

/// The legs of a transfer, shared by all transfers that are alike.
using Legs = std::shared_ptr<const std::vector<Leg>>;

/// Stations with one queue each, first come first served, through which transfers pass leg by leg: the communication of
/// one worker that stands for all, or of all workers of a host, in virtual time. Exact to the arithmetic, without
/// threads or randomness.
///
/// Each of several workers has a lane: all of them make the same calls in the same order, at times of their own. They
/// share the stations, but each has links of its own within the host. A transfer has a part in each lane. A frame that
/// a worker of this host gets from another host arrives when its own frame arrives there: all hosts do the same.
class Stations {
 public:
  using Ticket = std::size_t;

  /// `count`: of stations; the first one is the link within the host. REQUIRES: lanes <= Moments::kMost.
  explicit Stations(std::size_t count, std::size_t lanes = 1)
      : lanes_(lanes),
        out_(lanes, 0),
        in_(lanes, 0),
        calls_(lanes),
        free_(count, 0),
        busy_(count, 0),
        awaited_(lanes, kNone),
        held_(lanes),
        groups_(lanes) {}

  std::size_t lanes() const { return lanes_; }
  /// A transfer whose first leg can begin at `ready`. A leg of zero service takes no station. REQUIRES: one leg at
  /// least.
  Ticket submit(const Moments& ready, Legs legs);
  Ticket submit(double ready_s, std::vector<Leg> legs) {
    return submit(Moments(ready_s, lanes_), std::make_shared<const std::vector<Leg>>(std::move(legs)));
  }
  /// Returns the times at which the transfer is complete, if each worker waits for it from `since` on. Transfers that
  /// are submitted later must not be ready earlier.
  Moments end_of(Ticket ticket, const Moments& since);
  double end_of(Ticket ticket) { return end_of(ticket, Moments(0, lanes_)).last(); }
  /// Returns true if the transfer is complete for all at these times. The workers call, but do not wait.
  bool done_by(Ticket ticket, const Moments& now);
  /// Time for which the station has been occupied; of the links within the host the mean.
  double busy(std::size_t station) const { return busy_[station]; }
  std::size_t count() const { return free_.size(); }

 private:
  static constexpr Ticket kNone = static_cast<Ticket>(-1);
  /// A step of a transfer's part in one lane.
  struct Event {
    enum class Kind : std::uint8_t {
      comes,   ///< a frame of another worker of the host comes to this worker's link, which carries one after the other
      leaves,  ///< a frame of the present leg is ready to leave
      begins,  ///< the next leg is ready to begin
      waits,   ///< the next leg is ready, but begins with a call of the worker
    };
    double at_s = 0;
    Ticket part = kNone;
    Kind kind = Kind::begins;
    std::size_t leg = 0;  ///< of a frame that comes
    std::size_t frame = 0;
    std::uint64_t order = 0;
    bool operator>(const Event& other) const {
      return std::tuple(at_s, kind != Kind::comes, order) >
             std::tuple(other.at_s, other.kind != Kind::comes, other.order);
    }
  };
  /// The frames of a leg that a worker has from the others of its host.
  struct Got {
    std::size_t frames = 0;
    double last_s = 0;
  };
  /// A gate of a group, in one lane.
  struct Gate {
    std::size_t next = 0;                  ///< the number of the transfer that enters next
    std::map<std::size_t, Event> blocked;  ///< by number
  };
  struct Group {
    std::size_t transfers = 0;
    std::array<Gate, static_cast<std::size_t>(Leg::Gate::count)> gates;
  };
  /// A transfer's part in one lane.
  struct Transfer {
    Legs legs;
    std::size_t group = 0;
    std::size_t number = 0;  ///< in its group
    std::size_t next = 0;
    std::size_t frames_left = 0;  ///< of the present leg
    double begin_s = 0;           ///< of the leg before
    double left_s = 0;            ///< when the last frame of the present leg leaves to another worker of the host
    double end_s = 0;
    bool done = false;
    std::vector<Got> got = {};  ///< by leg; empty if there is one lane
  };

  std::size_t lane_of(Ticket part) const { return part % lanes_; }
  void call(std::size_t lane, double at_s);
  void add(Event event);
  void serve_first();
  void serve_leg(Ticket part, double at_s);
  void serve_frame(Ticket part, double at_s, std::size_t frame);
  void enter(const Event& event);
  Gate& gate_of(Ticket part, Leg::Gate gate);
  bool is_blocked(const Event& event, Leg::Gate gate);
  void open_next(Ticket part, Leg::Gate gate, double at_s);
  void end(Ticket part);
  void exchange(Ticket part, const Leg& leg, double at_s);
  void end_exchange(Ticket part, std::size_t leg);
  void take(const Event& frame);
  /// Returns how long a frame that arrives now waits for processors.
  double wait_for_work(const Leg& leg, double at_s);
  /// Occupies the station as soon as it is free. Returns when the service begins.
  double occupy(std::size_t station, double at_s, double service_s);
  /// A leg ends.
  void leave(Ticket part);
  bool done(Ticket ticket) const;

  const std::size_t lanes_;
  std::vector<double> out_;                 ///< by lane: when its link within the host is free
  std::vector<double> in_;                  ///< the other direction
  std::vector<std::vector<double>> calls_;  ///< by lane: when the worker called, ascending
  std::vector<double> free_;                ///< by station: when its queue is empty
  std::vector<double> busy_;
  std::vector<Transfer> transfers_;  ///< the parts of a transfer, by lane, then those of the next
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  std::vector<Ticket> awaited_;  ///< by lane: the part for which the worker waits; it submits nothing meanwhile
  std::vector<std::vector<Event>> held_;              ///< by lane: they begin with the next call
  std::vector<std::map<std::size_t, Group>> groups_;  ///< by lane
  std::uint64_t order_ = 0;
};

}  // namespace psring::bench
