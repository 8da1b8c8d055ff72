#include <algorithm>

#include <psring/common/net/shm/unix_handshake.h>

namespace psring::net {

void send_frame(const Fd& socket, const HandshakeFrame& frame, std::span<const int> files) {
  const auto header = encode(frame.header);
  std::vector<std::byte> bytes(header.begin(), header.end());
  bytes.insert(bytes.end(), frame.payload.begin(), frame.payload.end());
  send_packet(socket, bytes, files);
}

std::pair<FrameHeader, std::span<const std::byte>> parse_frame(const Packet& packet) {
  const std::span<const std::byte> bytes = packet.bytes;
  const FrameHeader header = decode(bytes.first(std::min(bytes.size(), kHeaderBytes)));
  const auto payload = bytes.subspan(kHeaderBytes);
  if (payload.size() != header.payload_bytes)
    fail(ErrorKind::protocol, "the frame's length differs from the length in its header");
  return {header, payload};
}

HandshakeFrame refusal(Peer self, const Error& error) {
  HandshakeFrame frame;
  const std::string text = std::string(error.what()).substr(0, kMaxRefusalBytes);
  frame.payload.assign(std::as_bytes(std::span(text)).begin(), std::as_bytes(std::span(text)).end());
  frame.header.type = FrameType::refused;
  frame.header.sender_role = self.role;
  frame.header.sender_rank = self.rank;
  frame.header.payload_bytes = text.size();
  frame.header.step = static_cast<std::uint64_t>(exit_status(error.kind()));
  return frame;
}

void shake_hands(const Fd& socket, const JobKey& key, Identity self, Peer server, const std::string& address,
                 std::span<const int> files, const Deadline& deadline) {
  ClientHandshake handshake(key, self, server, address, random_nonce());
  send_frame(socket, handshake.start());
  while (!handshake.open()) {
    const Packet packet = receive_packet(socket, deadline);
    const auto [header, payload] = parse_frame(packet);
    if (const std::optional<HandshakeFrame> next = handshake.on_frame(header, payload))
      send_frame(socket, *next, files);
  }
}

}  // namespace psring::net
