#include <algorithm>
#include <utility>

#include <psring/common/base/text/error.h>
#include <psring/common/net/tcp/link.h>
#include <psring/common/net/tcp/socket.h>

namespace psring::net {

TcpLink::TcpLink(Peer peer, std::uint32_t incarnation, std::string where,
                 std::vector<std::unique_ptr<TcpStream>> streams)
    : peer_(peer),
      incarnation_(incarnation),
      where_(std::move(where)),
      streams_(std::move(streams)),
      early_(streams_.size()) {}

std::string TcpLink::name() const { return fmt::format("{} at {}", to_string(peer_), where_); }

bool TcpLink::send(const FrameHeader& header, std::span<const std::byte> payload) {
  TcpStream& stream = *streams_[send_turn_];
  send_turn_ = (send_turn_ + 1) % streams_.size();
  stream.send(header, payload);
  return stream.unsent();
}

bool TcpLink::flush() {
  bool some = false;
  for (const auto& stream : streams_)
    if (stream->flush()) some = true;
  return some;
}

bool TcpLink::unsent() const {
  return std::any_of(streams_.begin(), streams_.end(), [](const auto& stream) { return stream->unsent(); });
}

std::size_t TcpLink::unsent_bytes() const {
  std::size_t bytes = 0;
  for (const auto& stream : streams_) bytes += stream->unsent_bytes();
  return bytes;
}

std::optional<Message> TcpLink::receive(const Place& place) {
  const std::size_t count = streams_.size();
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t at = (receive_turn_ + i) % count;
    if (!early_[at]) early_[at] = streams_[at]->receive(place);
    if (i > 0 || !early_[at]) continue;
    receive_turn_ = (at + 1) % count;
    return std::exchange(early_[at], std::nullopt);
  }
  // The end of one stream is the end of the link, but the other streams may still bring frames that were sent before.
  if (!ending_ && std::any_of(streams_.begin(), streams_.end(), [](const auto& stream) { return stream->broken(); })) {
    ending_ = true;
    for (const auto& stream : streams_) stream->shut_down();
  }
  if (const TcpStream& stream = *streams_[receive_turn_]; stream.closed())
    fail(ErrorKind::peer_lost, "{}", stream.end());
  return std::nullopt;
}

void TcpLink::try_all_streams() {
  for (const auto& stream : streams_) stream->try_anyway();
}

bool TcpLink::readable() const {
  for (std::size_t i = 0; i < streams_.size(); ++i)
    if (!early_[i] && streams_[i]->readable()) return true;
  return false;
}

bool TcpLink::hung_up() const {
  return std::any_of(streams_.begin(), streams_.end(), [](const auto& stream) { return stream->hung_up(); });
}

bool TcpLink::settled() const {
  return std::all_of(streams_.begin(), streams_.end(), [](const auto& stream) {
    return stream->hung_up() || (!stream->unsent() && net::unacknowledged_bytes(stream->socket()) == 0);
  });
}

std::size_t TcpLink::unacknowledged_bytes() const {
  std::size_t bytes = 0;
  for (const auto& stream : streams_) bytes += net::unacknowledged_bytes(stream->socket());
  return bytes;
}

void TcpLink::check_silence(Moment now, Nanoseconds silence) {
  if (std::none_of(streams_.begin(), streams_.end(), [](const auto& stream) { return unanswered(stream->socket()); })) {
    unanswered_since_.reset();
  } else if (!unanswered_since_) {
    unanswered_since_ = now;
  } else if (now - *unanswered_since_ >= silence) {
    for (const auto& stream : streams_)
      stream->give_up(fmt::format("no answer for {:.1f} s", seconds(now - *unanswered_since_)));
  }
}

}  // namespace psring::net
