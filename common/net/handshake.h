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

/// How a data link opens: each side proves that it holds the job's key before any payload is taken.
///
///   client -> hello      client's nonce (32 B)
///   server -> challenge  server's nonce (32 B), mac("server", both nonces, both identities, job) (32 B)
///   client -> proof      mac("client", both nonces, both identities, job) (32 B)
///   server -> accepted   no payload      | refused  one line of text
///
/// Both macs cover both fresh nonces, so nothing recorded earlier is worth anything; their labels differ,
/// so a side's own mac sent back to it is not a proof. An identity is role, rank and incarnation. These
/// are pure state machines: frames in, frames out; sockets and random numbers belong to the caller.

using Nonce = std::array<std::byte, 32>;

/// Fresh from the system's generator: every handshake takes its own.
Nonce random_nonce();

/// Who stands at one end of a link.
struct Identity {
  Peer peer;
  std::uint32_t incarnation = 0;
  friend constexpr bool operator==(const Identity&, const Identity&) = default;
};

/// A frame to send; the header is complete.
struct HandshakeFrame {
  FrameHeader header;
  std::vector<std::byte> payload;
};

/// The longest line of a refusal.
inline constexpr std::size_t kMaxRefusalBytes = 256;

/// The side that connects. `where` names the link in errors: "tcp://10.0.0.2:7001".
class ClientHandshake {
 public:
  ClientHandshake(const JobKey& key, Identity self, Peer server, std::string where, const Nonce& nonce);

  HandshakeFrame start() const;
  /// Takes what the server sent; returns what to send next, nothing once the link is open. Throws
  /// unauthorised where the server does not hold the key or refuses us, protocol where it breaks the grammar
  /// or is another process than was expected.
  std::optional<HandshakeFrame> on_frame(const FrameHeader& header, std::span<const std::byte> payload);
  bool open() const { return state_ == State::open; }
  /// As ServerHandshake::secret: both ends get the same.
  Mac secret(std::string_view purpose) const;

 private:
  enum class State : std::uint8_t { helloed, proved, open };
  HandshakeFrame on_challenge(const FrameHeader& header, std::span<const std::byte> payload);

  const JobKey key_;
  const Identity self_;
  const Peer server_;
  const std::string where_;
  const Nonce nonce_;
  State state_ = State::helloed;
  Nonce server_nonce_{};
  Identity server_identity_;
};

/// The side that listens; one for each link, with a nonce of its own. It never throws at what a stranger
/// sends: it refuses, and then the link is to be dropped.
class ServerHandshake {
 public:
  ServerHandshake(const JobKey& key, Identity self, const Nonce& nonce);

  /// Takes what the client sent; returns challenge, accepted or refused.
  HandshakeFrame on_frame(const FrameHeader& header, std::span<const std::byte> payload);
  /// Ends it for a reason of the caller's.
  HandshakeFrame refuse(std::string_view text);
  bool open() const { return state_ == State::open; }
  bool refused() const { return state_ == State::refused; }
  /// Who has proved the key. REQUIRES open().
  Identity client() const { return client_; }
  /// A secret that only the two ends of this link can know, another one for each purpose. REQUIRES open().
  Mac secret(std::string_view purpose) const;

 private:
  enum class State : std::uint8_t { waiting, challenged, open, refused };
  HandshakeFrame on_hello(const FrameHeader& header, std::span<const std::byte> payload);
  HandshakeFrame on_proof(const FrameHeader& header, std::span<const std::byte> payload);

  JobKey key_;
  Identity self_;
  Nonce nonce_;
  State state_ = State::waiting;
  Nonce client_nonce_{};
  Identity client_;
};

/// The text of a `refused` or `failed` frame, fit for one line: bounded, printable ASCII only.
std::string one_line(std::span<const std::byte> text);

}  // namespace psring::net
