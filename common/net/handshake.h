#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <psring/common/net/frame.h>
#include <psring/common/net/key.h>

namespace psring::net {

/// Opens a data link: each side proves that it holds the job's key before any payload is accepted.
///
///   client -> hello      client's nonce (32 B)
///   server -> challenge  server's nonce (32 B), mac("server", both nonces, both identities, job) (32 B)
///   client -> proof      mac("client", both nonces, both identities, job) (32 B)
///   server -> accepted   no payload      | refused  one line of text
///
/// Both MACs cover both fresh nonces, so a recorded handshake cannot be replayed. Their labels differ, so a side's own
/// MAC cannot be reflected as a proof. An identity is role, rank and incarnation. Both sides are pure state machines:
/// frames in, frames out. The caller owns sockets and random numbers.

using Nonce = std::array<std::byte, 32>;

/// Returns a fresh nonce from the system's generator. Every handshake needs its own nonce.
Nonce random_nonce();

/// The process at one end of a link.
struct Identity {
  Peer peer;
  std::uint32_t incarnation = 0;
  friend constexpr bool operator==(const Identity&, const Identity&) = default;
};

/// A frame to send, with a complete header.
struct HandshakeFrame {
  FrameHeader header;
  std::vector<std::byte> payload;
};

/// The longest text of a refusal, in bytes.
inline constexpr std::size_t kMaxRefusalBytes = 256;

/// The connecting side. `address` names the link in errors: "tcp://10.0.0.2:7001".
class ClientHandshake {
 public:
  ClientHandshake(const JobKey& key, Identity self, Peer server, std::string address, const Nonce& nonce);

  HandshakeFrame start() const;
  /// Takes a frame of the server. Returns the next frame to send, or nothing once the link is open. Throws unauthorised
  /// if the server does not hold the key or refuses the link, protocol if the server breaks the grammar or is not the
  /// expected process.
  std::optional<HandshakeFrame> on_frame(const FrameHeader& header, std::span<const std::byte> payload);
  bool open() const { return state_ == State::open; }
  /// Returns the same secret as ServerHandshake::secret of the other end.
  Mac secret(std::string_view purpose) const;

 private:
  enum class State : std::uint8_t { helloed, proved, open };
  HandshakeFrame on_challenge(const FrameHeader& header, std::span<const std::byte> payload);

  const JobKey key_;
  const Identity self_;
  const Peer server_;
  const std::string address_;
  const Nonce nonce_;
  State state_ = State::helloed;
  Nonce server_nonce_{};
  Identity server_identity_;
};

/// The listening side. Each link has its own handshake and nonce. A client's bytes never make it throw: it refuses the
/// client, and the caller must drop the link.
class ServerHandshake {
 public:
  ServerHandshake(const JobKey& key, Identity self, const Nonce& nonce);

  /// Takes a frame of the client; returns challenge, accepted or refused.
  HandshakeFrame on_frame(const FrameHeader& header, std::span<const std::byte> payload);
  /// Ends the handshake for a reason of the caller.
  HandshakeFrame refuse(std::string_view text);
  bool open() const { return state_ == State::open; }
  bool refused() const { return state_ == State::refused; }
  /// True if the client was refused because it does not hold the job's key.
  bool wrong_key() const { return wrong_key_; }
  /// The client that proved the key. REQUIRES: open().
  Identity client() const { return client_; }
  /// Returns a secret that only the two ends of this link know; each purpose has a different secret. REQUIRES: open().
  Mac secret(std::string_view purpose) const;

 private:
  enum class State : std::uint8_t { waiting, challenged, open, refused };
  HandshakeFrame on_hello(const FrameHeader& header, std::span<const std::byte> payload);
  HandshakeFrame on_proof(const FrameHeader& header, std::span<const std::byte> payload);
  HandshakeFrame refuse_key(std::string_view text);

  JobKey key_;
  Identity self_;
  Nonce nonce_;
  State state_ = State::waiting;
  bool wrong_key_ = false;
  Nonce client_nonce_{};
  Identity client_;
};

/// Turns the payload of a `refused` or `failed` frame into one line: bounded, printable ASCII only.
std::string one_line(std::span<const std::byte> text);

}  // namespace psring::net
