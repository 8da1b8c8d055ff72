// Bounds the memory that a stranger can make a listening ZeroMQ port hold before it has proved the job's key.
#include <algorithm>
#include <cstring>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include <catch2/catch.hpp>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <psring/common/net/refusals.h>
#include <psring/common/net/tcp/socket.h>
#include <psring/common/net/zmq/channel.h>
#include <psring/tests/support/hand_clock.h>

using namespace psring;
using namespace psring::net;

namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20;
constexpr std::size_t kFlood = 1024 * kMiB;  // what a stranger would send if nobody stopped it
constexpr std::size_t kMost = 128 * kMiB;    // several times what is in flight until it is stopped
constexpr int kStrangers = 8;

std::size_t resident_bytes() {
  std::ifstream in("/proc/self/statm");
  std::size_t total = 0;
  std::size_t resident = 0;
  REQUIRE(in >> total >> resident);
  return resident * static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
}

/// A ZMTP 3 greeting: signature, version, mechanism.
std::string greeting(const std::string& mechanism) {
  std::string bytes = std::string("\xff\0\0\0\0\0\0\0\1\x7f\3\0", 12) + mechanism;
  bytes.resize(64);
  return bytes;
}

/// The head of a frame: 1 is MORE, 2 a size of 8 bytes, 4 a command.
std::string long_frame(int flags, std::uint64_t size) {
  std::string bytes(1, static_cast<char>(flags | 2));
  for (int shift = 56; shift >= 0; shift -= 8) bytes += static_cast<char>(size >> shift & 0xff);
  return bytes;
}

/// The bytes that introduce a DEALER to a peer without CURVE.
std::string ready() {
  const std::string body = std::string("\5READY\13Socket-Type\0\0\0\6DEALER", 28);
  std::string bytes(1, '\4');
  bytes += static_cast<char>(body.size());
  bytes += body;
  return bytes;
}

/// Sends until the other end hangs up, at most kFlood; returns how much left, and raises `most` to the memory held.
std::size_t flood(const std::string& endpoint, const std::string& opening, const std::string& frame,
                  std::size_t& most) {
  const Fd socket = start_connect(endpoint);
  pollfd item{socket.get(), POLLOUT, 0};
  REQUIRE(::poll(&item, 1, 20'000) == 1);
  std::size_t sent = 0;
  const auto send = [&](const std::string& bytes) {
    for (std::size_t at = 0; at < bytes.size();) {
      item.events = POLLOUT;
      if (::poll(&item, 1, 20'000) != 1) return false;
      const ssize_t size = ::send(socket.get(), bytes.data() + at, bytes.size() - at, MSG_NOSIGNAL | MSG_DONTWAIT);
      if (size < 0 && errno == EAGAIN) continue;
      if (size < 0) return false;
      at += static_cast<std::size_t>(size);
      sent += static_cast<std::size_t>(size);
      most = std::max(most, resident_bytes());
    }
    return true;
  };
  if (send(opening))
    while (sent < kFlood && send(frame)) {
    }
  return sent;
}

}  // namespace

TEST_CASE("a stranger does not fill a listener's memory, though its owner never looks") {
  struct Way {
    const char* name;
    bool encrypt;
    std::string opening;
    std::string frame;
  };
  const std::string mebibyte(kMiB, 'x');
  const auto way = GENERATE_COPY(values<Way>({
      {"parts without end", false, greeting("NULL") + ready(), long_frame(1, kMiB) + mebibyte},
      {"small parts without end", false, greeting("NULL") + ready(), long_frame(1, 64) + std::string(64, 'x')},
      {"whole messages", false, greeting("NULL") + ready(), long_frame(0, kMiB) + mebibyte},
      {"one large part", false, greeting("NULL") + ready() + long_frame(0, 16 * kMiB), mebibyte},
      {"commands in place of CURVE's", true, greeting("CURVE") + long_frame(4, 16 * kMiB), mebibyte},
  }));
  CAPTURE(way.name);
  const JobKey key = JobKey::generate();
  const test::HandClock clock{Moment{} + std::chrono::hours(1)};
  Refusals refusals("port", clock, [](const std::string&) {});
  ZmqContext context;
  const ZapAuthenticator allow_list(context.handle(), {key.client_keys().public_key});
  const auto channel = make_zmq_channel(context, {.key = key,
                                                  .self = {{Role::server, 0}, 0},
                                                  .encrypt = way.encrypt,
                                                  .authenticator = &allow_list,
                                                  .refusals = &refusals});
  const std::string endpoint = channel->listen("tcp://127.0.0.1:0").substr(6);
  std::string frame = way.frame;
  while (frame.size() < kMiB) frame += way.frame;  // a few calls each, not millions
  const std::size_t before = resident_bytes();
  std::size_t most = before;
  for (int stranger = 0; stranger < kStrangers; ++stranger) CHECK(flood(endpoint, way.opening, frame, most) < kFlood);
  CHECK(most - before < kMost);
  const SystemClock now;
  const Moment deadline = now.now() + std::chrono::seconds(20);
  while (refusals.total() < kStrangers && now.now() < deadline) std::this_thread::yield();
  CHECK(refusals.total() == kStrangers);
}
