#include <algorithm>
#include <cstring>

#include <sodium.h>

#include <psring/common/base/text/error.h>
#include <psring/common/net/handshake.h>

namespace psring::net {
namespace {

void append(std::vector<std::byte>& bytes, std::span<const std::byte> more) {
  bytes.insert(bytes.end(), more.begin(), more.end());
}

template <class Number>
void append_number(std::vector<std::byte>& bytes, Number number) {
  append(bytes, std::as_bytes(std::span(&number, 1)));
}

void append_identity(std::vector<std::byte>& bytes, Identity identity) {
  append_number(bytes, static_cast<std::uint32_t>(identity.peer.role));
  append_number(bytes, identity.peer.rank);
  append_number(bytes, identity.incarnation);
}

/// The bytes that both proofs cover. All fields have a fixed size and follow the label, so that different transcripts
/// never have the same bytes.
struct Transcript {
  Nonce client_nonce;
  Nonce server_nonce;
  Identity client;
  Identity server;

  Mac proof(const JobKey& key, std::string_view side) const { return key.mac(labelled(key, side)); }
  Mac secret(const JobKey& key, std::string_view purpose) const { return key.link_secret(labelled(key, purpose)); }
  std::vector<std::byte> labelled(const JobKey& key, std::string_view label) const {
    std::vector<std::byte> bytes;
    append(bytes, std::as_bytes(std::span(label)));
    append(bytes, client_nonce);
    append(bytes, server_nonce);
    append_identity(bytes, client);
    append_identity(bytes, server);
    append_number(bytes, key.job_id());
    return bytes;
  }
};

constexpr std::string_view kServerWord = "server";
constexpr std::string_view kClientWord = "client";
static_assert(kServerWord.size() == kClientWord.size());

HandshakeFrame make_frame(FrameType type, const JobKey& key, Identity self, std::vector<std::byte> payload) {
  FrameHeader header;
  header.type = type;
  header.job = key.job_id();
  header.sender_role = self.peer.role;
  header.sender_rank = self.peer.rank;
  header.incarnation = self.incarnation;
  header.payload_bytes = payload.size();
  return {header, std::move(payload)};
}

Identity sender_of(const FrameHeader& header) { return {header.sender(), header.incarnation}; }

}  // namespace

Nonce random_nonce() {
  check(sodium_init() >= 0, "libsodium could not be initialised");
  Nonce nonce;
  randombytes_buf(nonce.data(), nonce.size());
  return nonce;
}

std::string one_line(std::span<const std::byte> text) {
  std::string line;
  for (const std::byte byte : text.first(std::min(text.size(), kMaxRefusalBytes))) {
    const char c = static_cast<char>(byte);
    line += c >= ' ' && c <= '~' ? c : '?';
  }
  return line;
}

ClientHandshake::ClientHandshake(const JobKey& key, Identity self, Peer server, std::string address, const Nonce& nonce)
    : key_(key), self_(self), server_(server), address_(std::move(address)), nonce_(nonce) {}

HandshakeFrame ClientHandshake::start() const {
  return make_frame(FrameType::hello, key_, self_, {nonce_.begin(), nonce_.end()});
}

std::optional<HandshakeFrame> ClientHandshake::on_frame(const FrameHeader& header, std::span<const std::byte> payload) {
  if (header.type == FrameType::refused) {
    // A server that lacks a resource reports the exit status of its own error; see refusal().
    const bool data = header.step == static_cast<std::uint64_t>(exit_status(ErrorKind::data));
    fail(data ? ErrorKind::data : ErrorKind::unauthorised, "{} at {} refused the link: {}", to_string(server_),
         address_, one_line(payload));
  }
  if (state_ == State::helloed && header.type == FrameType::challenge) return on_challenge(header, payload);
  if (state_ == State::proved && header.type == FrameType::accepted && payload.empty() && header.sender() == server_) {
    state_ = State::open;
    return std::nullopt;
  }
  fail(ErrorKind::protocol, "{} at {}: unexpected {} of {} bytes while the link opens", to_string(server_), address_,
       to_string(header.type), payload.size());
}

HandshakeFrame ClientHandshake::on_challenge(const FrameHeader& header, std::span<const std::byte> payload) {
  if (payload.size() != sizeof(Nonce) + sizeof(Mac))
    fail(ErrorKind::protocol, "{} at {}: challenge of {} bytes, expected {}", to_string(server_), address_,
         payload.size(), sizeof(Nonce) + sizeof(Mac));
  if (header.sender() != server_)
    fail(ErrorKind::protocol, "expected {} at {}, found {}", to_string(server_), address_, to_string(header.sender()));
  Transcript transcript{nonce_, {}, self_, sender_of(header)};
  std::copy_n(payload.begin(), sizeof(Nonce), transcript.server_nonce.begin());
  if (header.job != key_.job_id() ||
      !equal_in_constant_time(transcript.proof(key_, kServerWord), payload.subspan(sizeof(Nonce))))
    fail(ErrorKind::unauthorised, "{} at {} does not hold this job's key", to_string(server_), address_);
  const Mac proof = transcript.proof(key_, kClientWord);
  server_nonce_ = transcript.server_nonce;
  server_identity_ = transcript.server;
  state_ = State::proved;
  return make_frame(FrameType::proof, key_, self_, {proof.begin(), proof.end()});
}

Mac ClientHandshake::secret(std::string_view purpose) const {
  check(open(), "a link that is not open has no secret");
  return Transcript{nonce_, server_nonce_, self_, server_identity_}.secret(key_, purpose);
}

ServerHandshake::ServerHandshake(const JobKey& key, Identity self, const Nonce& nonce)
    : key_(key), self_(self), nonce_(nonce) {}

HandshakeFrame ServerHandshake::on_frame(const FrameHeader& header, std::span<const std::byte> payload) {
  if (state_ == State::waiting && header.type == FrameType::hello) return on_hello(header, payload);
  if (state_ == State::challenged && header.type == FrameType::proof) return on_proof(header, payload);
  return refuse("the link is not open: the job's key must be proved first");
}

HandshakeFrame ServerHandshake::on_hello(const FrameHeader& header, std::span<const std::byte> payload) {
  if (payload.size() != sizeof(Nonce)) return refuse("hello of a wrong size");
  if (header.job != key_.job_id()) return refuse_key("another job: its key is not the one that we hold");
  client_ = sender_of(header);
  std::copy_n(payload.begin(), sizeof(Nonce), client_nonce_.begin());
  const Mac proof = Transcript{client_nonce_, nonce_, client_, self_}.proof(key_, kServerWord);
  std::vector<std::byte> challenge(nonce_.begin(), nonce_.end());
  append(challenge, proof);
  state_ = State::challenged;
  return make_frame(FrameType::challenge, key_, self_, std::move(challenge));
}

HandshakeFrame ServerHandshake::on_proof(const FrameHeader& header, std::span<const std::byte> payload) {
  const Mac expected = Transcript{client_nonce_, nonce_, client_, self_}.proof(key_, kClientWord);
  if (sender_of(header) != client_ || header.job != key_.job_id() || !equal_in_constant_time(expected, payload))
    return refuse_key("the proof of the job's key is wrong");
  state_ = State::open;
  return make_frame(FrameType::accepted, key_, self_, {});
}

Mac ServerHandshake::secret(std::string_view purpose) const {
  check(open(), "a link that is not open has no secret");
  return Transcript{client_nonce_, nonce_, client_, self_}.secret(key_, purpose);
}

HandshakeFrame ServerHandshake::refuse_key(std::string_view text) {
  wrong_key_ = true;
  return refuse(text);
}

HandshakeFrame ServerHandshake::refuse(std::string_view text) {
  state_ = State::refused;
  const auto bytes = std::as_bytes(std::span(text));
  return make_frame(FrameType::refused, key_, self_, {bytes.begin(), bytes.end()});
}

}  // namespace psring::net
