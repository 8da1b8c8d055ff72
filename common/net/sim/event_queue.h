#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <queue>
#include <vector>

#include <psring/common/base/clock.h>
#include <psring/common/base/rng.h>
#include <psring/common/net/transport.h>

namespace psring::net {

/// The random draws of a simulated network, in the order in which the network asks for them: the n-th draw follows
/// from the seed and n alone.
class SeededDraws {
 public:
  explicit SeededDraws(std::uint64_t seed) : rng_({.seed = seed, .purpose = Purpose::network}) {}

  std::uint32_t bits() { return rng_.bits(draws_++); }
  /// Uniform in [0, 1).
  float uniform() { return rng_.uniform(draws_++); }
  /// True with this probability. A probability of 0 takes no draw.
  bool chance(double probability) { return probability > 0 && uniform() < probability; }

 private:
  const CounterRng rng_;
  std::uint64_t draws_ = 0;
};

/// A change of a simulated network that happens at a moment.
struct SimulatedEvent {
  enum class Kind : std::uint8_t { departs, arrives, dies, returns, is_lost };

  Moment time;
  std::uint32_t tie = 0;    ///< orders the events of one moment; drawn by EventQueue::add
  std::uint64_t order = 0;  ///< orders the events of one moment and one tie; set by EventQueue::add
  Kind kind = Kind::departs;
  std::size_t from = 0;                        ///< the sender's place, or the place of the peer that is lost
  std::size_t to = 0;                          ///< the place at which the event happens
  std::shared_ptr<Message> message = nullptr;  ///< shared because a priority queue only hands out copies
  std::uint32_t from_life = 0;                 ///< the incarnation of `from` when the event was added
  std::uint32_t to_life = 0;                   ///< the incarnation of `to` when the event was added
  std::optional<Nanoseconds> returns_after{};  ///< for `dies`: the time until the peer returns; none: it does not
};

/// The events of a simulated network, by time. The seed orders the events of one moment.
class EventQueue {
 public:
  /// REQUIRES: `draws` outlives the queue.
  explicit EventQueue(SeededDraws& draws) : draws_(draws) {}

  /// Takes one draw.
  void add(SimulatedEvent event);
  bool empty() const { return events_.empty(); }
  /// The time of the next event; kNever if the queue is empty.
  Moment next_time() const { return empty() ? kNever : events_.top().time; }
  /// Removes the next event. REQUIRES: the queue is not empty.
  SimulatedEvent take();

 private:
  struct Later {
    bool operator()(const SimulatedEvent& a, const SimulatedEvent& b) const;
  };

  SeededDraws& draws_;
  std::priority_queue<SimulatedEvent, std::vector<SimulatedEvent>, Later> events_;
  std::uint64_t order_ = 0;
};

}  // namespace psring::net
