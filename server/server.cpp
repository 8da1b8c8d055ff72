#include <psring/server/server.h>

#include <chrono>
#include <utility>

#include <psring/common/base/error.h>
#include <psring/common/net/outbox.h>

namespace psring::server {

void serve(Shard& shard, net::Transport& transport, const Clock& clock, const std::function<bool()>& finished) {
  constexpr std::chrono::milliseconds kLook{100};
  net::Outbox outbox;
  std::vector<net::Outgoing> replies;
  while (!finished() || !outbox.empty()) {
    try {
      if (auto message = transport.receive(clock.now() + kLook)) shard.on_message(std::move(*message), replies);
      for (const net::Outgoing& reply : replies) outbox.add(reply);
      replies.clear();
      outbox.flush(transport);
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::peer_lost && error.kind() != ErrorKind::protocol) throw;
    }
  }
}

}  // namespace psring::server
