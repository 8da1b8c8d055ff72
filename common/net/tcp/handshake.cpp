#include <cstring>
#include <utility>

#include <poll.h>

#include <psring/common/base/text/error.h>
#include <psring/common/net/tcp/handshake.h>
#include <psring/common/net/tcp/socket.h>

namespace psring::net {
namespace {

constexpr std::string_view kToServer = "to server";
constexpr std::string_view kToClient = "to client";

/// The label from which the key of one direction of a stream is derived. All numbers have a fixed width.
std::string purpose(const TcpPart& part, std::string_view direction) {
  return fmt::format("tcp {} {:016x} {:02}/{:02} ", direction, part.mark, part.number, part.streams);
}

/// Allows only small frames while a link opens, because nobody has proved the key.
std::span<std::byte> admit(const FrameHeader& header) {
  if (header.payload_bytes > kMaxRefusalBytes)
    fail(ErrorKind::protocol, "{} of {} bytes while the link opens", to_string(header.type), header.payload_bytes);
  return {};
}

}  // namespace

TcpPart TcpPart::of(const FrameHeader& hello) { return {hello.dest, hello.begin, hello.end, hello.version == 1}; }

void TcpPart::write(FrameHeader& hello) const {
  hello.dest = mark;
  hello.begin = number;
  hello.end = streams;
  hello.version = encrypt ? 1 : 0;
}

TcpOpening::TcpOpening(const JobKey& key, Identity self, Peer peer, std::string where, TcpPart part,
                       std::unique_ptr<TcpStream> stream)
    : peer_(peer),
      where_(std::move(where)),
      part_(part),
      stream_(std::move(stream)),
      handshake_(key, self, peer, where_, random_nonce()) {}

bool TcpOpening::connect() {
  pollfd item{stream_->socket().get(), POLLOUT, 0};
  if (::poll(&item, 1, 0) <= 0) return false;
  if (const int error = connect_error(stream_->socket()); error != 0)
    fail(ErrorKind::peer_lost, "{} at {}: {}", to_string(peer_), where_, std::strerror(error));
  connected_ = true;
  HandshakeFrame hello = handshake_.start();
  part_.write(hello.header);
  stream_->on_connected();
  stream_->send(hello.header, hello.payload);
  return true;
}

void TcpOpening::advance() {
  if (!connected_ && !connect()) return;
  const auto receive = [&] {
    try {
      return stream_->receive(admit);
    } catch (const Error& error) {
      throw error.with_context(fmt::format("{} at {}", to_string(peer_), where_));
    }
  };
  while (const std::optional<Message> message = receive()) {
    if (const auto frame = handshake_.on_frame(message->header, message->payload))
      stream_->send(frame->header, frame->payload);
    if (!open()) continue;
    if (part_.encrypt)
      stream_->encrypt(handshake_.secret(purpose(part_, kToServer)), handshake_.secret(purpose(part_, kToClient)));
    return;
  }
  if (stream_->closed())
    fail(ErrorKind::peer_lost, "{} at {}: {} while the link was opening", to_string(peer_), where_, stream_->end());
}

TcpStranger::TcpStranger(const JobKey& key, Identity self, bool encrypt, std::string where, Moment deadline,
                         std::unique_ptr<TcpStream> stream)
    : handshake_(key, self, random_nonce()),
      encrypt_(encrypt),
      where_(std::move(where)),
      deadline_(deadline),
      stream_(std::move(stream)) {}

bool TcpStranger::advance(const Objection& objection) {
  try {
    while (!proved()) {
      const std::optional<Message> message = stream_->receive(admit);
      if (!message) return !stream_->closed();
      const HandshakeFrame reply = answer(*message, objection);
      stream_->send(reply.header, reply.payload);
      if (handshake_.refused()) return false;
    }
    if (encrypt_)
      stream_->encrypt(handshake_.secret(purpose(part_, kToClient)), handshake_.secret(purpose(part_, kToServer)));
    return true;
  } catch (const Error&) {  // the client does not speak the protocol
    return false;
  }
}

HandshakeFrame TcpStranger::answer(const Message& message, const Objection& objection) {
  if (message.header.type == FrameType::hello) {
    part_ = TcpPart::of(message.header);
    if (part_.encrypt != encrypt_) return handshake_.refuse("--encrypt is not the same on both sides");
    if (part_.streams < 1 || part_.streams > kMaxTcpStreams || part_.number >= part_.streams)
      return handshake_.refuse("no such stream of a link");
  }
  HandshakeFrame reply = handshake_.on_frame(message.header, message.payload);
  if (!proved()) return reply;
  const std::string why = objection(*this);
  return why.empty() ? reply : handshake_.refuse(why);
}

}  // namespace psring::net
