#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include <psring/common/base/byte_ledger.h>
#include <psring/common/net/handshake.h>
#include <psring/common/net/transport.h>

namespace psring::net {

/// The faults of the frames that a process sends, each with its probability.
struct FrameFaults {
  double drop = 0;       ///< the frame never leaves
  double duplicate = 0;  ///< the frame leaves twice
  double reorder = 0;    ///< the next frame to the same peer overtakes the frame
  double corrupt = 0;    ///< one bit flips: of the payload, or of the step if there is no payload
  std::uint64_t seed = 0;
};

/// Returns a transport that injects these faults into the frames that it sends; the protocol above it has to recover.
/// The faults of the sender's n-th frame follow from the seed, the sender and n alone.
/// REQUIRES: `inner` outlives the returned transport.
std::unique_ptr<Transport> make_faulty_transport(Transport& inner, Peer self, const FrameFaults& faults);

/// Returns the transport of a process whose job injects frame faults: `make_links` makes the links, which count in the
/// ledger that they are given; a faulty transport lies over them; and over both a reliable transport, which counts in
/// `ledger`. Either all processes of a job use such a transport, or none.
std::unique_ptr<Transport> make_disturbed_transport(
    const Identity& self, const FrameFaults& faults, ByteLedger& ledger,
    const std::function<std::unique_ptr<Transport>(ByteLedger&)>& make_links);

}  // namespace psring::net
