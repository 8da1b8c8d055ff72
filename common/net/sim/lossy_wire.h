#pragma once

#include <functional>
#include <memory>
#include <utility>

#include <psring/common/base/clock.h>
#include <psring/common/net/block_pool.h>
#include <psring/common/net/sim/event_queue.h>
#include <psring/common/net/transport.h>

namespace psring::net {

/// The faults of a simulated wire. The first three are probabilities per frame.
struct WireFaults {
  double drop = 0;
  double duplicate = 0;
  double corrupt = 0;          ///< flips one bit of the payload, or of the step if there is no payload
  Nanoseconds extra_delay{0};  ///< the longest extra delay of a frame; it is drawn, so frames overtake each other
};

/// The wire between the network cards of two simulated peers: loses, duplicates, corrupts and delays frames.
class LossyWire {
 public:
  using Deliver = std::function<void(Nanoseconds extra_delay, std::shared_ptr<Message> message)>;

  /// REQUIRES: `draws` outlives the wire.
  LossyWire(const WireFaults& faults, SeededDraws& draws, std::shared_ptr<BlockPool> blocks)
      : faults_(faults), draws_(draws), blocks_(std::move(blocks)) {}

  /// Calls `deliver` with a copy of the frame, for each copy that arrives: none, one or two. Each call may take draws:
  /// the next fault is drawn after it.
  void carry(const Message& message, const Deliver& deliver);

 private:
  void carry_copy(const Message& message, const Deliver& deliver);
  std::shared_ptr<Message> corrupted(const Message& message);

  const WireFaults faults_;
  SeededDraws& draws_;
  const std::shared_ptr<BlockPool> blocks_;  ///< shared with the blocks of messages
};

}  // namespace psring::net
