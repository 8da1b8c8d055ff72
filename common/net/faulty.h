#pragma once

#include <cstdint>
#include <memory>

#include <psring/common/net/transport.h>

namespace psring::net {

/// What happens to frames that a process sends: the probabilities of each.
struct FrameFaults {
  double drop = 0;       ///< it never leaves
  double duplicate = 0;  ///< it leaves twice
  double reorder = 0;    ///< it waits for the next frame to that peer to overtake it
  double corrupt = 0;    ///< one bit of it is another on the way: of its payload, or where it has none, of its step
  std::uint64_t seed = 0;
};

/// A transport that does this to what is sent, for the protocol above it to make up for. What happens to the sender's
/// n-th frame follows from the seed, the sender and n alone.
/// `inner` outlives what is made.
std::unique_ptr<Transport> make_faulty_transport(Transport& inner, Peer self, const FrameFaults& faults);

}  // namespace psring::net
