#include <chrono>
#include <utility>

#include <psring/common/base/error.h>
#include <psring/common/base/trace.h>
#include <psring/common/net/outbox.h>
#include <psring/server/server.h>

namespace psring::server {

void serve(Shard& shard, net::Transport& transport, const Clock& clock, const std::function<bool()>& finished,
           Trace* trace) {
  Trace none(clock, false);
  if (trace == nullptr) trace = &none;
  constexpr std::chrono::milliseconds kLook{100};
  net::Outbox outbox;
  std::vector<net::Outgoing> replies;
  while (!finished() || !outbox.empty()) {
    try {
      if (auto message = transport.receive(clock.now() + kLook)) {
        const net::FrameHeader& header = message->header;
        const Trace::Span span(*trace, to_string(header.type), trace->on() ? to_string(header.sender()) : "");
        shard.on_message(std::move(*message), replies);
      }
      for (const net::Outgoing& reply : replies) outbox.add(reply);
      replies.clear();
      outbox.flush(transport);
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::peer_lost && error.kind() != ErrorKind::protocol) throw;
    }
  }
}

}  // namespace psring::server
