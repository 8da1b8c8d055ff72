#pragma once

#include <span>
#include <string>
#include <utility>
#include <vector>

#include <psring/common/base/deadline.h>
#include <psring/common/base/error.h>
#include <psring/common/net/handshake.h>
#include <psring/common/net/unix_socket.h>

namespace psring::net {

/// Frames of a handshake as packets of a local socket: header and payload, and files beside them.
void send_frame(const Fd& socket, const HandshakeFrame& frame, std::span<const int> files = {});
/// A packet's header and payload, which points into it. Throws protocol.
std::pair<FrameHeader, std::span<const std::byte>> parse_frame(const Packet& packet);
/// What a client that cannot be taken is sent: the line, and as `step` the exit status of its kind.
HandshakeFrame refusal(Peer self, const Error& error);

/// The connecting side, to its end; `files` go with the proof, once the server has proved the key.
/// Throws unauthorised, protocol, timeout, peer_lost.
void shake_hands(const Fd& socket, const JobKey& key, Identity self, Peer server, const std::string& where,
                 std::span<const int> files, const Deadline& deadline);
/// The listening side, to its end: who has connected, and the files that came with the proof. Throws as above.
std::pair<Identity, std::vector<Fd>> answer_handshake(const Fd& socket, const JobKey& key, Identity self,
                                                      const Deadline& deadline);

}  // namespace psring::net
