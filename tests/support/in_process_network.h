#pragma once

#include <memory>

#include <psring/common/base/byte_ledger.h>
#include <psring/common/net/transport.h>

namespace psring::net {

/// Peers as threads of one process: every endpoint is linked to every other endpoint. `send` copies the payload into a
/// pooled block, so nothing is ever in flight. A frame to a peer without an endpoint throws peer_lost.
class InProcessNetwork {
 public:
  explicit InProcessNetwork(std::uint64_t job = 0);
  ~InProcessNetwork();

  /// Makes an endpoint, which may outlive the network. REQUIRES: `self` has no endpoint, and the ledger outlives it.
  std::unique_ptr<Transport> endpoint(Peer self, ByteLedger& ledger);

 private:
  struct State;
  class Endpoint;
  std::shared_ptr<State> state_;  ///< shared with the endpoints, and with messages for their blocks
};

}  // namespace psring::net
