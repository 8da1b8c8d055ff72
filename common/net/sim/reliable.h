#pragma once

#include <cstdint>
#include <memory>

#include <psring/common/base/byte_ledger.h>
#include <psring/common/base/clock.h>
#include <psring/common/net/sim/reliable_link.h>
#include <psring/common/net/transport.h>

namespace psring::net {

/// A transport over one that may lose, double, reorder and change frames, as long as what it takes to get through is
/// not lost each time: it keeps the contract of Transport. Both ends of all links must have one. Payloads are copied
/// as they are sent; reply spaces and places are not passed on, as an answer may have to be sent twice.
class ReliableTransport : public Transport {
 public:
  struct Options {
    ReliableLink::Options link;
    /// Where the inner transport's deadlines come from.
    const Clock* clock = nullptr;
    /// Counts each frame once, as if nothing had been lost, "retransmitted" what was sent again, as framing, and
    /// "acknowledge". What the inner transport counts is all that it moves. Null: nobody counts.
    ByteLedger* ledger = nullptr;
    /// A thread of its own acknowledges, and sends again, while its owner computes or waits for something else. Without
    /// it that is done in `send` and `receive` alone: then the owner must not wait elsewhere for what a peer does.
    bool keeper = true;
    /// How long the destructor goes on until all has arrived that was sent: the last frames may be lost, too.
    Nanoseconds linger = std::chrono::seconds(1);
  };

  /// A peer is this incarnation from now on; see ReliableLink::meet. Of the owner's thread.
  virtual void meet(Peer peer, std::uint32_t incarnation) = 0;
  /// Goes on, taking nothing in, until all that was sent has arrived, or `deadline`. A peer that is lost has nothing to
  /// wait for. Says whether all has arrived. Of the owner's thread.
  virtual bool drain(Moment deadline) = 0;
};

/// `inner` is shared so that whatever it is made of may go with it, or stay.
std::unique_ptr<ReliableTransport> make_reliable_transport(std::shared_ptr<Transport> inner,
                                                           const ReliableTransport::Options& options);

}  // namespace psring::net
