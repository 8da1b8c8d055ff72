#pragma once

#include <cstdint>
#include <memory>

#include <psring/common/base/byte_ledger.h>
#include <psring/common/base/clock.h>
#include <psring/common/net/sim/reliable_link.h>
#include <psring/common/net/transport.h>

namespace psring::net {

/// A reliable transport over an inner transport that may lose, duplicate, reorder and corrupt frames, as long as a
/// frame that is sent again and again gets through. Both ends of all links need a reliable transport. `send` copies
/// payloads; reply spaces and places are not passed on, because an answer may be sent twice.
class ReliableTransport : public Transport {
 public:
  struct Options {
    ReliableLink::Options link;
    /// The clock of the inner transport's deadlines.
    const Clock* clock = nullptr;
    /// Counts each frame once, as if no frame had been lost; repeated frames count as framing of the operation
    /// "retransmitted", and acknowledgements as "acknowledge". The inner transport counts all that it moves, in a
    /// ledger of its own. Null: this transport does not count.
    ByteLedger* ledger = nullptr;
    /// True: the transport has a thread, the keeper, which acknowledges and retransmits while the owner computes or
    /// waits elsewhere. False: only `send` and `receive` acknowledge and retransmit; then the owner must not wait
    /// elsewhere for a peer.
    bool keeper = true;
    /// The longest time that the destructor waits until all frames have arrived, retransmitting lost ones.
    Nanoseconds linger = std::chrono::seconds(1);
  };

  /// The peer has this incarnation from now on; see ReliableLink::meet. Called by the owner's thread.
  virtual void meet(Peer peer, std::uint32_t incarnation) = 0;
  /// Retransmits until all frames have arrived, or until `deadline`; frames that arrive meanwhile wait for `receive`.
  /// Lost peers are not waited for. Returns true if all frames have arrived. Called by the owner's thread.
  virtual bool drain(Moment deadline) = 0;
};

/// `inner` is shared, so that the caller may pass ownership of it, or keep it.
std::unique_ptr<ReliableTransport> make_reliable_transport(std::shared_ptr<Transport> inner,
                                                           const ReliableTransport::Options& options);

}  // namespace psring::net
