#pragma once

#include <memory>

#include <psring/common/base/byte_ledger.h>
#include <psring/common/net/transport.h>

namespace psring::net {

/// Peers as threads of one process: every endpoint is linked to every other. Payloads are copied into
/// pooled blocks when they are sent; nothing is ever in flight. An endpoint that is gone, or was never
/// there, is a lost peer to whoever sends to it.
class InProcessNetwork {
 public:
  explicit InProcessNetwork(std::uint64_t job = 0);
  ~InProcessNetwork();

  /// A new endpoint; it may outlive the network. REQUIRES: `self` has none, and the ledger outlives it.
  std::unique_ptr<Transport> endpoint(Peer self, ByteLedger& ledger);

 private:
  struct State;
  class Endpoint;
  std::shared_ptr<State> state_;  ///< shared with the endpoints, and with messages for their blocks
};

}  // namespace psring::net
