#include <algorithm>
#include <optional>
#include <span>
#include <utility>

#include <fmt/format.h>

#include <psring/common/net/handshake.h>
#include <psring/ring/link/endpoint.h>
#include <psring/ring/link/engine.h>
#include <psring/ring/link/operation.h>

namespace psring::ring {
namespace {

constexpr Nanoseconds kPoll = std::chrono::milliseconds(20);
constexpr Nanoseconds kLastWords = std::chrono::milliseconds(200);

net::Peer worker(std::size_t rank) { return {net::Role::worker, static_cast<std::uint32_t>(rank)}; }

}  // namespace

void LinkFailure::break_off(const Error& error) noexcept {
  if (told_) return;
  told_ = error;
  last_words_ = error.what();
  net::FrameHeader header;
  header.type = net::FrameType::failed;
  header.unit = static_cast<std::uint32_t>(error.kind());
  for (std::size_t r = 0; r < ranks_; ++r) {
    if (r == rank_) continue;
    try {
      transport_.send(worker(r), header, std::as_bytes(std::span(last_words_)));
    } catch (const Error&) {  // this peer is the lost one
    }
  }
  let_words_leave();
}

bool LinkFailure::words_in_flight() const {
  for (std::size_t r = 0; r < ranks_; ++r)
    if (r != rank_ && transport_.in_flight_bytes(worker(r)) > 0) return true;
  return false;
}

/// If a peer's link to this rank closed before the peer gets the reason, the peer would name this rank as the cause.
void LinkFailure::let_words_leave() {
  const Moment limit = clock_.now() + kLastWords;
  for (std::size_t errors = 0; words_in_flight() && clock_.now() < limit;) {
    try {
      transport_.receive(clock_.now() + kPoll);
    } catch (const Error&) {  // other peers end, too; but a transport that keeps failing sends nothing more
      if (++errors > ranks_) return;
    }
  }
}

LinkEngine::LinkEngine(net::Transport& transport, std::size_t rank, std::size_t ranks, LinkOptions options)
    : transport_(transport),
      options_(std::move(options)),
      clock_(options_.clock != nullptr ? *options_.clock : system_clock_),
      failure_(transport, clock_, rank, ranks),
      thread_(transport) {
  transport_.place_payloads([this](const net::FrameHeader& header) {
    const auto found = groups_.find(header.group);
    return found == groups_.end() ? std::span<std::byte>() : found->second->place(header);
  });
  if (!options_.background) return;
  thread_.start([this] { return !failure_.any() && busy(); },
                [this] {
                  try {
                    advance_all();
                    if (busy()) take_message(clock_.now() + kPeerCheck);
                  } catch (const Error& error) {
                    if (!failure_.told()) failure_.find(error);
                  }
                });
}

LinkEngine::~LinkEngine() { transport_.place_payloads({}); }

std::uint64_t LinkEngine::send(net::Peer to, const net::FrameHeader& header, std::span<const std::byte> payload) {
  transport_.send(to, header, payload);
  return sent_bytes_[to.rank] += payload.size();
}

bool LinkEngine::left(net::Peer to, std::uint64_t sent) const {
  const std::size_t in_flight = transport_.in_flight_bytes(to);
  return in_flight == 0 || (transport_.leaves_in_order(to) && in_flight <= sent_bytes_.at(to.rank) - sent);
}

void LinkEngine::add(std::uint32_t group_id, LinkEndpoint& group) {
  groups_[group_id] = &group;
  for (net::Message& message : std::exchange(homeless_, {})) {
    if (message.header.group == group_id)
      group.arrived(std::move(message));
    else
      homeless_.push_back(std::move(message));
  }
}

bool LinkEngine::busy() const {
  return std::any_of(groups_.begin(), groups_.end(), [](const auto& each) { return !each.second->idle(); });
}

void LinkEngine::advance_all() {
  for (const auto& [id, group] : groups_) group->step();
}

/// Takes one message, if one arrives in time.
bool LinkEngine::take_message(Moment deadline) {
  std::optional<net::Message> message = transport_.receive(deadline);
  if (!message) return false;
  if (message->header.type == net::FrameType::failed) {
    // Pass the error on: the rank that found it may not reach the others before our links to them close.
    failure_.end(Error(static_cast<ErrorKind>(std::min<std::uint32_t>(message->header.unit, 7)),
                       net::one_line(message->payload)));
  }
  const auto found = groups_.find(message->header.group);
  if (found == groups_.end()) {
    homeless_.push_back(std::move(*message));
  } else {
    found->second->arrived(std::move(*message));
  }
  return true;
}

void LinkEngine::take_all() {
  failure_.rethrow();
  // If there is a thread, the thread takes the messages.
  while (!options_.background && take_message(Moment::min())) {
  }
  advance_all();
}

void LinkEngine::take_next(Moment deadline) {
  failure_.rethrow();
  take_message(deadline);
  advance_all();
}

/// A rank that ends after its last operation is lost. Its earlier messages complete our operations first, and the next
/// call reports the loss.
void LinkEngine::advance_for(const LinkOperation& operation) {
  try {
    take_all();
  } catch (const Error& error) {
    if (failure_.told()) throw;
    advance_all();
    if (operation.finished()) return failure_.find(error);
    failure_.end(error.with_context(operation.doing()));
  }
}

/// Probes the peer once for each kPeerCheck without a message. The transport also returns before, without one: when
/// bytes have left.
void LinkEngine::wait_for(const LinkOperation& operation) {
  std::optional<Moment> since;
  Moment check_at{};
  for (;;) {
    if (failure_.told()) throw Error(*failure_.told());
    advance_all();
    if (operation.finished()) return;
    try {
      failure_.rethrow();
      const Moment now = clock_.now();
      if (!since) {
        since = now;
        check_at = now + kPeerCheck;
      }
      if (take_message(check_at)) {
        since = std::nullopt;
        continue;
      }
      if (clock_.now() < check_at) continue;
      check_at = clock_.now() + kPeerCheck;
      if (options_.group.check) options_.group.check();
      operation.probe();
    } catch (const Error& error) {
      if (failure_.told()) throw;
      failure_.end(error.with_context(operation.doing()));
    }
    const Nanoseconds waited = clock_.now() - *since;
    if (options_.group.op_timeout > Nanoseconds(0) && waited > options_.group.op_timeout)
      failure_.end(
          Error(ErrorKind::timeout, fmt::format("{}: nothing for {:.1f} s", operation.doing(), seconds(waited))));
  }
}

}  // namespace psring::ring
