#include <chrono>
#include <optional>
#include <utility>

#include <psring/common/base/text/error.h>
#include <psring/common/net/outbox.h>
#include <psring/server/server.h>

namespace psring::server {
namespace {

/// Ignores errors of a single peer: `finished` decides whether a lost peer ends the job.
template <class Call>
void tolerate_peers(Call&& call) {
  try {
    call();
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::peer_lost && error.kind() != ErrorKind::protocol) throw;
  }
}

bool pushes(net::FrameType type) {
  return type == net::FrameType::push || type == net::FrameType::push_pull || type == net::FrameType::rows_push;
}

/// True if the work on a frame is part of a step. Start-up is not.
bool is_of_step(net::FrameType type) {
  return pushes(type) || type == net::FrameType::pull || type == net::FrameType::rows_pull ||
         type == net::FrameType::verdict;
}

/// The loop of servers and followers: calls `take` with each frame that arrives, or with nothing if none came in time,
/// then `between`, for work that is no part of a step. Returns the time spent on the steps' frames and their answers.
Nanoseconds loop(net::Transport& transport, const Clock& clock, net::Outbox outbox,
                 const std::function<bool()>& finished, std::vector<net::Outgoing>& out,
                 const std::function<void(std::optional<net::Message>, Moment now)>& take,
                 const std::function<void()>& between) {
  constexpr std::chrono::milliseconds kLook{100};
  const auto flush = [&] {
    for (const net::Outgoing& frame : out) outbox.add(frame);
    out.clear();
    tolerate_peers([&] { outbox.flush(transport); });
  };
  flush();
  Nanoseconds busy{0};
  while (!finished() || !outbox.empty()) {
    std::optional<net::Message> message;
    tolerate_peers([&] { message = transport.receive(clock.now() + kLook); });
    const bool of_step = message && is_of_step(message->header.type);
    const Moment start = clock.now();
    take(std::move(message), start);
    flush();
    if (of_step) busy += clock.now() - start;
    between();
    if (!out.empty()) flush();
  }
  return busy;
}

}  // namespace

Nanoseconds serve(Shard& shard, net::Transport& transport, const Clock& clock, const std::function<bool()>& finished,
                  Events* events, const std::function<void(std::uint64_t step)>& save, Replication* replication) {
  std::vector<net::Outgoing> out;
  const auto handle = [&](net::Message message) {
    replication != nullptr ? replication->on_message(std::move(message), out)
                           : shard.on_message(std::move(message), out);
  };
  const auto in_order = replication != nullptr ? std::optional(replication->follower()) : std::nullopt;
  return loop(
      transport, clock, net::Outbox(net::kWindowBytes, in_order), finished, out,
      [&](std::optional<net::Message> message, Moment now) {
        if (message && events != nullptr && events->active() && !message->payload.empty()) {
          const net::FrameHeader& header = message->header;
          if (pushes(header.type)) events->begin_step(header.step);
          const Activity work{.name = to_string(header.type),
                              .unit = header.unit,
                              .peer = name_of(header.sender()),
                              .bytes = message->payload.size(),
                              .serves_frame = true};
          const Events::Span span(*events, work, events->step(), now);
          handle(std::move(*message));
        } else if (message) {
          handle(std::move(*message));
        }
      },
      [&] {
        const auto step = shard.save_due();
        if (!step) return;
        save(*step);
        replication != nullptr ? replication->saved(out) : shard.saved(out);
      });
}

void follow(Follower& follower, net::Transport& transport, const Clock& clock, const std::function<bool()>& finished) {
  std::vector<net::Outgoing> out;
  follower.begin(out);
  loop(
      transport, clock, net::Outbox(), finished, out,
      [&](std::optional<net::Message> message, Moment /*now*/) {
        if (message) follower.on_message(std::move(*message), out);
      },
      [] {});
}

}  // namespace psring::server
