#include <chrono>
#include <optional>
#include <utility>

#include <psring/common/base/error.h>
#include <psring/common/base/trace.h>
#include <psring/common/net/outbox.h>
#include <psring/server/server.h>

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

void handle(Shard& shard, net::Message message, std::vector<net::Outgoing>& replies, Trace* trace) {
  if (trace == nullptr || !trace->on() || message.payload.empty()) return shard.on_message(std::move(message), replies);
  const Trace::Span span(*trace, to_string(message.header.type),
                         fmt::format("of {}, unit {}", to_string(message.header.sender()), message.header.unit));
  shard.on_message(std::move(message), replies);
}

}  // namespace

void serve(Shard& shard, net::Transport& transport, const Clock& clock, const std::function<bool()>& finished,
           Trace* trace, const std::function<void(std::uint64_t step)>& save) {
  constexpr std::chrono::milliseconds kLook{100};
  net::Outbox outbox;
  std::vector<net::Outgoing> replies;
  while (!finished() || !outbox.empty()) {
    std::optional<net::Message> message;
    tolerate_peers([&] { message = transport.receive(clock.now() + kLook); });
    if (message) handle(shard, std::move(*message), replies, trace);
    if (const auto step = shard.save_due()) {
      save(*step);
      shard.saved(replies);
    }
    for (const net::Outgoing& reply : replies) outbox.add(reply);
    replies.clear();
    tolerate_peers([&] { outbox.flush(transport); });
  }
}

}  // namespace psring::server
