// Packets of a local socket, before the key is proved: both sides to their end, and the state machines behind them.
#include <psring/common/net/shm/unix_handshake.h>
#include <psring/tests/fuzz/frames.h>
#include <psring/tests/fuzz/sockets.h>

using namespace psring;
using namespace psring::net;

namespace {

constexpr Peer kServer{Role::server, 0};
constexpr Identity kWorker{{Role::worker, 1}, 0};

Packet packet_of(const HandshakeFrame& frame) {
  Packet packet;
  const auto header = encode(frame.header);
  packet.bytes.assign(header.begin(), header.end());
  packet.bytes.insert(packet.bytes.end(), frame.payload.begin(), frame.payload.end());
  return packet;
}

Packet odd_packet(fuzz::Input& in) {
  HandshakeFrame frame;
  if (in.below(2) == 0) {
    const auto bytes = in.take(in.byte());
    return {{bytes.begin(), bytes.end()}, {}};
  }
  frame.header = fuzz::read_header(in, fuzz::job_key().job_id());
  const auto payload = in.take(in.byte());
  frame.payload.assign(payload.begin(), payload.end());
  if (frame.header.payload_bytes == 0) frame.header.payload_bytes = payload.size();
  return packet_of(frame);
}

/// Both machines, with what each says handed on or replaced.
void machines(fuzz::Input in) {
  ClientHandshake client(fuzz::job_key(), kWorker, kServer, "there", Nonce{});
  ServerHandshake server(fuzz::job_key(), {kServer, 0}, Nonce{});
  bool honest = true;  // all that was handed on is what the other side said
  Packet to_server = packet_of(client.start());
  fuzz::refuses({ErrorKind::protocol, ErrorKind::unauthorised}, [&] {
    for (int i = 0; i < 6 && !in.empty(); ++i) {
      if (in.below(3) == 0) to_server = odd_packet(in), honest = false;
      const auto [header, payload] = parse_frame(to_server);
      Packet to_client = packet_of(server.on_frame(header, payload));
      if (in.below(3) == 0) to_client = odd_packet(in), honest = false;
      const auto [answer, text] = parse_frame(to_client);
      const auto next = client.on_frame(answer, text);
      if (!next) break;
      to_server = packet_of(*next);
    }
  });
  fuzz::require(!(honest && client.open()) || server.open(), "a client that is in alone");
  if (server.open() && client.open())
    fuzz::require(server.secret("x") == client.secret("x"), "the same secret at both ends");
}

}  // namespace

void psring::fuzz::run(Input in) {
  const std::size_t what = in.below(3);
  if (what == 0) return machines(in);
  const std::array<Fd, 2> ends = socket_pair(SOCK_SEQPACKET);
  const Fd& ours = ends[0];
  const Fd& theirs = ends[1];
  while (!in.empty()) write_some(theirs, odd_packet(in).bytes);
  ::shutdown(theirs.get(), SHUT_WR);  // so that nothing waits
  const Moment soon = SystemClock().now() + std::chrono::seconds(5);
  const bool let_in = refuses({ErrorKind::protocol, ErrorKind::unauthorised, ErrorKind::peer_lost}, [&] {
    if (what == 1) {
      answer_handshake(ours, job_key(), {kServer, 0}, soon);
    } else {
      shake_hands(ours, job_key(), kWorker, kServer, "there", {}, soon);
    }
  });
  require(!let_in, "nobody who holds the key was there");
}
