// Packets of a local socket, before the key is proved: both sides to their end, and the state machines behind them.
#include <string>

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <psring/common/net/shm/gate.h>
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

/// Writes all packets, and ends the stream so that nothing waits for more.
void write_odd_packets(const Fd& socket, fuzz::Input& in) {
  while (!in.empty()) fuzz::write_some(socket, odd_packet(in).bytes);
  ::shutdown(socket.get(), SHUT_WR);
}

}  // namespace

void psring::fuzz::run(Input in) {
  const std::size_t what = in.below(3);
  if (what == 0) return machines(in);
  const Moment soon = SystemClock().now() + std::chrono::seconds(5);
  bool let_in = false;
  if (what == 1) {
    const std::string name = "psring-fuzz-handshake-" + std::to_string(::getpid());
    UnixGate gate(listen_unix(name), {.key = job_key(), .self = {kServer, 0}});
    const Fd theirs = connect_unix(name, soon);
    write_odd_packets(theirs, in);
    while (wait_for(gate.wait_fd(), POLLIN, SystemClock().now()))
      gate.poll([&](Identity, Fd& socket, const std::vector<Fd>&) -> const Fd& {
        let_in = true;
        return socket;
      });
  } else {
    const std::array<Fd, 2> ends = socket_pair(SOCK_SEQPACKET);
    write_odd_packets(ends[1], in);
    let_in = refuses({ErrorKind::protocol, ErrorKind::unauthorised, ErrorKind::peer_lost},
                     [&] { shake_hands(ends[0], job_key(), kWorker, kServer, "there", {}, soon); });
  }
  require(!let_in, "nobody who holds the key was there");
}
