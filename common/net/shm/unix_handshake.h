#pragma once

#include <span>
#include <string>
#include <utility>

#include <psring/common/base/deadline.h>
#include <psring/common/base/text/error.h>
#include <psring/common/net/handshake.h>
#include <psring/common/net/unix_socket.h>

namespace psring::net {

/// Sends a handshake's frame as one packet of a local socket: header and payload, with files attached.
void send_frame(const Fd& socket, const HandshakeFrame& frame, std::span<const int> files = {});
/// Splits a packet into header and payload; the payload points into the packet. Throws protocol.
std::pair<FrameHeader, std::span<const std::byte>> parse_frame(const Packet& packet);
/// Makes the frame that rejects a client: the error's line, and as `step` the exit status of its kind.
HandshakeFrame refusal(Peer self, const Error& error);

/// Runs the connecting side to its end; the listening side is UnixGate. `files` are sent with the proof, after the
/// server has proved the key. Throws unauthorised, protocol, timeout, peer_lost.
void shake_hands(const Fd& socket, const JobKey& key, Identity self, Peer server, const std::string& address,
                 std::span<const int> files, const Deadline& deadline);

}  // namespace psring::net
