#include <span>

#include <psring/ring/link/failure.h>

namespace psring::ring {
namespace {

constexpr Nanoseconds kTurn = std::chrono::milliseconds(20);
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
      transport_.receive(clock_.now() + kTurn);
    } catch (const Error&) {  // other peers end, too; but a transport that keeps failing sends nothing more
      if (++errors > ranks_) return;
    }
  }
}

}  // namespace psring::ring
