#include <psring/server/server.h>

#include <chrono>
#include <optional>
#include <utility>

#include <psring/common/base/error.h>
#include <psring/common/net/outbox.h>

namespace psring::server {
namespace {

/// Whether a peer that is lost, or breaks the protocol, ends the job is not for this loop to say.
template <class Call>
void tolerate_peers(Call&& call) {
  try {
    call();
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::peer_lost && error.kind() != ErrorKind::protocol) throw;
  }
}

}  // namespace

void serve(Shard& shard, net::Transport& transport, const Clock& clock, const std::function<bool()>& finished) {
  constexpr std::chrono::milliseconds kLook{100};
  net::Outbox outbox;
  std::vector<net::Outgoing> replies;
  while (!finished() || !outbox.empty()) {
    std::optional<net::Message> message;
    tolerate_peers([&] { message = transport.receive(clock.now() + kLook); });
    if (message) shard.on_message(std::move(*message), replies);
    for (const net::Outgoing& reply : replies) outbox.add(reply);
    replies.clear();
    tolerate_peers([&] { outbox.flush(transport); });
  }
}

}  // namespace psring::server
