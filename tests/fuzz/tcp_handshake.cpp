// A socket that was accepted, and one that was opened, fed with bytes, with frames and with honest answers: only who
// holds the key comes through.
#include <psring/common/net/tcp/handshake.h>
#include <psring/tests/fuzz/frames.h>
#include <psring/tests/fuzz/sockets.h>

using namespace psring;
using namespace psring::net;

namespace {

constexpr Peer kServer{Role::server, 0};
constexpr Peer kWorker{Role::worker, 1};

/// Reads what a stranger is told, as a frame.
std::optional<HandshakeFrame> read_frame(const Fd& socket) {
  std::array<std::byte, 4096> bytes;
  const ssize_t size = ::recv(socket.get(), bytes.data(), bytes.size(), MSG_DONTWAIT);
  if (size < static_cast<ssize_t>(kHeaderBytes)) return std::nullopt;
  const std::span<const std::byte> all = std::span(bytes).first(static_cast<std::size_t>(size));
  const FrameHeader header = decode(all.first(kHeaderBytes));
  const auto payload = all.subspan(kHeaderBytes);
  if (header.payload_bytes != payload.size()) return std::nullopt;
  return HandshakeFrame{header, {payload.begin(), payload.end()}};
}

void write_frame(const Fd& socket, const HandshakeFrame& frame) {
  fuzz::write_some(socket, encode(frame.header));
  fuzz::write_some(socket, frame.payload);
}

HandshakeFrame odd_frame(fuzz::Input& in) {
  HandshakeFrame frame;
  frame.header = fuzz::read_header(in, fuzz::job_key().job_id());
  const auto payload = in.take(in.byte());
  frame.payload.assign(payload.begin(), payload.end());
  if (frame.header.payload_bytes == 0) frame.header.payload_bytes = payload.size();
  return frame;
}

void stranger(fuzz::Input in, bool encrypt) {
  std::array<Fd, 2> ends = fuzz::socket_pair(SOCK_STREAM);
  const Fd& theirs = ends[1];
  TcpStranger accepted(fuzz::job_key(), {kServer, 0}, encrypt, "here", Moment::max(),
                       std::make_unique<TcpStream>(std::move(ends[0]), std::make_shared<BlockPool>()));
  ClientHandshake honest(fuzz::job_key(), {kWorker, 0}, kServer, "there", Nonce{});
  bool proof_sent = false;
  while (!in.empty()) {
    switch (in.below(4)) {
      case 0:
        fuzz::write_some(theirs, in.take(in.byte()));
        break;
      case 1:
        write_frame(theirs, odd_frame(in));
        break;
      case 2: {
        HandshakeFrame hello = honest.start();
        TcpPart{in.number<std::uint64_t>(), in.below(18), in.below(18), encrypt}.write(hello.header);
        hello.header.end = std::max(hello.header.begin, hello.header.end);
        write_frame(theirs, hello);
        break;
      }
      default:
        if (const auto frame = read_frame(theirs)) {
          fuzz::refuses({ErrorKind::protocol, ErrorKind::unauthorised}, [&] {
            if (const auto next = honest.on_frame(frame->header, frame->payload)) {
              write_frame(theirs, *next);
              proof_sent = true;
            }
          });
        }
    }
    const bool odd = in.byte() % 8 == 0;
    if (!accepted.advance([&](const TcpStranger&) { return odd ? "not you" : ""; })) return;
    fuzz::require(!accepted.proved() || proof_sent, "a link without a proof of the key");
    if (accepted.proved()) return;
  }
}

void opening(fuzz::Input in, bool encrypt) {
  std::array<Fd, 2> ends = fuzz::socket_pair(SOCK_STREAM);
  const Fd& theirs = ends[1];
  TcpOpening opened(fuzz::job_key(), {kWorker, 0}, kServer, "there", {7, 0, 1, encrypt},
                    std::make_unique<TcpStream>(std::move(ends[0]), std::make_shared<BlockPool>()));
  ServerHandshake honest(fuzz::job_key(), {kServer, 0}, Nonce{});
  bool challenged = false;
  fuzz::refuses({ErrorKind::protocol, ErrorKind::unauthorised, ErrorKind::peer_lost}, [&] {
    opened.advance();
    while (!in.empty() && !opened.open()) {
      switch (in.below(3)) {
        case 0:
          fuzz::write_some(theirs, in.take(in.byte()));
          break;
        case 1:
          write_frame(theirs, odd_frame(in));
          break;
        default:
          if (const auto frame = read_frame(theirs)) {
            const HandshakeFrame answer = honest.on_frame(frame->header, frame->payload);
            challenged = challenged || answer.header.type == FrameType::challenge;
            write_frame(theirs, answer);
          }
      }
      opened.advance();
      fuzz::require(!opened.open() || challenged, "a link to who did not prove the key");
    }
  });
}

}  // namespace

void psring::fuzz::run(Input in) {
  const std::uint8_t what = in.byte();
  if ((what & 1) == 0) return stranger(in, (what & 2) != 0);
  opening(in, (what & 2) != 0);
}
