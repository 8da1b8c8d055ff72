#include <cstring>
#include <string>

#include <catch2/catch.hpp>

#include <psring/common/base/text/error.h>
#include <psring/common/net/handshake.h>

namespace psring::net {
namespace {

const Identity kWorker{{Role::worker, 3}, 1};
const Identity kServer{{Role::server, 1}, 0};
const std::string kWhere = "tcp://10.0.0.2:7001";

Nonce nonce(int value) {
  Nonce bytes;
  bytes.fill(static_cast<std::byte>(value));
  return bytes;
}

ClientHandshake client(const JobKey& key, int with_nonce = 1) {
  return {key, kWorker, kServer.peer, kWhere, nonce(with_nonce)};
}
ServerHandshake server(const JobKey& key, int with_nonce = 2) { return {key, kServer, nonce(with_nonce)}; }

HandshakeFrame give(ServerHandshake& to, const HandshakeFrame& frame) {
  return to.on_frame(frame.header, frame.payload);
}
std::optional<HandshakeFrame> give(ClientHandshake& to, const HandshakeFrame& frame) {
  return to.on_frame(frame.header, frame.payload);
}

/// The kind and line of what `action` throws.
template <class Action>
Error error_of(Action action) {
  try {
    action();
  } catch (const Error& error) {
    return error;
  }
  throw std::logic_error("nothing was thrown");
}

void require_refused(const ServerHandshake& server, const HandshakeFrame& answer) {
  CHECK(answer.header.type == FrameType::refused);
  CHECK(answer.header.payload_bytes == answer.payload.size());
  CHECK(answer.payload.size() <= kMaxRefusalBytes);
  CHECK(server.refused());
  CHECK_FALSE(server.open());
}

}  // namespace

TEST_CASE("a link opens once both sides have proved the key") {
  const JobKey key = JobKey::generate();
  ClientHandshake c = client(key);
  ServerHandshake s = server(key);
  const HandshakeFrame challenge = give(s, c.start());
  CHECK(challenge.header.type == FrameType::challenge);
  CHECK_FALSE(s.open());
  const auto proof = give(c, challenge);
  REQUIRE(proof);
  CHECK(proof->header.type == FrameType::proof);
  CHECK_FALSE(c.open());
  const HandshakeFrame accepted = give(s, *proof);
  CHECK(accepted.header.type == FrameType::accepted);
  CHECK(s.open());
  CHECK(s.client() == kWorker);
  CHECK_FALSE(give(c, accepted));
  CHECK(c.open());
  for (const HandshakeFrame& frame : {c.start(), challenge, *proof, accepted}) {
    CHECK(frame.header.payload_bytes == frame.payload.size());
    CHECK(frame.header.job == key.job_id());
    CHECK_NOTHROW(decode(encode(frame.header)));
  }
}

TEST_CASE("random nonces differ") { CHECK(random_nonce() != random_nonce()); }

TEST_CASE("another job's client is refused at once, and hears it in one line") {
  ClientHandshake c = client(JobKey::generate());
  ServerHandshake s = server(JobKey::generate());
  const HandshakeFrame answer = give(s, c.start());
  require_refused(s, answer);
  const Error error = error_of([&] { give(c, answer); });
  CHECK(error.kind() == ErrorKind::unauthorised);
  CHECK_THAT(error.what(), Catch::Contains("server 1 at tcp://10.0.0.2:7001 refused the link: another job"));
}

TEST_CASE("a client that knows the job's number but not its key is refused") {
  const JobKey key = JobKey::generate();
  const JobKey other = JobKey::generate();
  ServerHandshake s = server(key);
  HandshakeFrame hello = client(other).start();
  hello.header.job = key.job_id();
  CHECK(give(s, hello).header.type == FrameType::challenge);
  HandshakeFrame proof = hello;
  proof.header.type = FrameType::proof;
  require_refused(s, give(s, proof));
}

TEST_CASE("a server without the key is told apart, whatever job it claims") {
  const JobKey key = JobKey::generate();
  const JobKey other = JobKey::generate();
  ClientHandshake c = client(key);
  HandshakeFrame hello = c.start();
  hello.header.job = other.job_id();
  ServerHandshake s = server(other);
  HandshakeFrame challenge = give(s, hello);
  REQUIRE(challenge.header.type == FrameType::challenge);
  const bool claim = GENERATE(false, true);
  if (claim) challenge.header.job = key.job_id();
  const Error error = error_of([&] { give(c, challenge); });
  CHECK(error.kind() == ErrorKind::unauthorised);
  CHECK(std::string(error.what()) == "server 1 at tcp://10.0.0.2:7001 does not hold this job's key");
}

TEST_CASE("a recorded handshake cannot be replayed") {
  const JobKey key = JobKey::generate();
  ClientHandshake c = client(key);
  ServerHandshake s = server(key);
  const HandshakeFrame challenge = give(s, c.start());
  const HandshakeFrame proof = *give(c, challenge);
  SECTION("to a server with a fresh nonce") {
    ServerHandshake again = server(key, 7);
    give(again, c.start());
    require_refused(again, give(again, proof));
  }
  SECTION("to a client with a fresh nonce") {
    ClientHandshake again = client(key, 8);
    CHECK(error_of([&] { give(again, challenge); }).kind() == ErrorKind::unauthorised);
  }
}

TEST_CASE("a mac sent back to its maker proves nothing") {
  const JobKey key = JobKey::generate();
  ClientHandshake c = client(key);
  ServerHandshake s = server(key);
  const HandshakeFrame challenge = give(s, c.start());
  HandshakeFrame reflected = *give(c, challenge);
  reflected.payload.assign(challenge.payload.begin() + sizeof(Nonce), challenge.payload.end());
  require_refused(s, give(s, reflected));
}

TEST_CASE("the identities are part of the proof") {
  const JobKey key = JobKey::generate();
  ClientHandshake c = client(key);
  ServerHandshake s = server(key);
  SECTION("a client cannot become another one between hello and proof") {
    HandshakeFrame proof = *give(c, give(s, c.start()));
    SECTION("by rank") { proof.header.sender_rank = 0; }
    SECTION("by role") { proof.header.sender_role = Role::server; }
    SECTION("by incarnation") { proof.header.incarnation = 9; }
    require_refused(s, give(s, proof));
  }
  SECTION("a hello changed on its way is noticed by the client") {
    HandshakeFrame hello = c.start();
    hello.header.sender_rank = 0;
    const HandshakeFrame challenge = give(s, hello);
    CHECK(error_of([&] { give(c, challenge); }).kind() == ErrorKind::unauthorised);
  }
  SECTION("another server than the one that was meant is named") {
    ServerHandshake other(key, {{Role::server, 0}, 0}, nonce(2));
    const HandshakeFrame challenge = give(other, c.start());
    const Error error = error_of([&] { give(c, challenge); });
    CHECK(error.kind() == ErrorKind::protocol);
    CHECK(std::string(error.what()) == "expected server 1 at tcp://10.0.0.2:7001, found server 0");
  }
  SECTION("nor may it claim the right name") {
    ServerHandshake other(key, {{Role::server, 0}, 0}, nonce(2));
    HandshakeFrame challenge = give(other, c.start());
    challenge.header.sender_rank = 1;
    CHECK(error_of([&] { give(c, challenge); }).kind() == ErrorKind::unauthorised);
  }
}

TEST_CASE("frames of a wrong size are refused") {
  const JobKey key = JobKey::generate();
  ClientHandshake c = client(key);
  ServerHandshake s = server(key);
  const auto size = GENERATE(as<std::size_t>{}, 0, 31, 33, 63, 65, 4096);
  const auto resize = [&](HandshakeFrame frame) {
    std::vector<std::byte> payload(size);
    std::copy_n(frame.payload.begin(), std::min(size, frame.payload.size()), payload.begin());
    frame.payload = payload;
    return frame;
  };
  SECTION("hello") { require_refused(s, give(s, resize(c.start()))); }
  SECTION("challenge") {
    const HandshakeFrame challenge = resize(give(s, c.start()));
    CHECK(error_of([&] { give(c, challenge); }).kind() == ErrorKind::protocol);
  }
  SECTION("proof") {
    const HandshakeFrame proof = *give(c, give(s, c.start()));
    require_refused(s, give(s, resize(proof)));
  }
  SECTION("accepted") {
    HandshakeFrame accepted = give(s, *give(c, give(s, c.start())));
    accepted.payload.resize(1);
    CHECK(error_of([&] { give(c, accepted); }).kind() == ErrorKind::protocol);
    CHECK_FALSE(c.open());
  }
}

TEST_CASE("nothing else is taken before the link is open") {
  const JobKey key = JobKey::generate();
  ClientHandshake c = client(key);
  const auto type = static_cast<FrameType>(GENERATE(range(1, int{kFrameTypes})));
  FrameHeader header;
  header.type = type;
  header.job = key.job_id();
  header.sender_role = Role::server;
  header.sender_rank = 1;
  INFO(to_string(type));
  SECTION("by a server that waits for hello") {
    ServerHandshake s = server(key);
    require_refused(s, s.on_frame(header, {}));
  }
  SECTION("by a server that waits for the proof") {
    ServerHandshake s = server(key);
    give(s, c.start());
    require_refused(s, s.on_frame(header, {}));
    // Once refused, the right proof comes too late.
    ServerHandshake twin = server(key);
    const HandshakeFrame proof = *give(c, give(twin, c.start()));
    require_refused(s, give(s, proof));
  }
  SECTION("by a client that waits for the challenge") {
    CHECK_THROWS_AS(c.on_frame(header, {}), Error);
    CHECK_FALSE(c.open());
  }
}

TEST_CASE("a refusal's text cannot break the line") {
  const std::string text = "bad\nnews\x1b[31m" + std::string(1000, 'x');
  const std::string line = one_line(std::as_bytes(std::span(text)));
  CHECK(line.size() == kMaxRefusalBytes);
  CHECK(line.substr(0, 14) == "bad?news?[31mx");
}

}  // namespace psring::net
