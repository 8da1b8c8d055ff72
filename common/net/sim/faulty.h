#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include <psring/common/base/byte_ledger.h>
#include <psring/common/net/handshake.h>
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

/// What a process of a job talks through where frames suffer: links, which are made to count in the ledger that they
/// are given; what this process does to its frames; and a reliable transport over both, which counts in `ledger`. All
/// processes of the job have one, or none.
std::unique_ptr<Transport> make_disturbed_transport(
    const Identity& self, const FrameFaults& faults, ByteLedger& ledger,
    const std::function<std::unique_ptr<Transport>(ByteLedger&)>& make_links);

}  // namespace psring::net
