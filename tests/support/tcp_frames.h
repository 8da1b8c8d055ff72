#pragma once

#include <chrono>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <catch2/catch.hpp>
#include <poll.h>

#include <psring/common/net/tcp/channel.h>
#include <psring/tests/support/tcp_cluster.h>

// Frames of TCP links, as the tests of links send and receive them.

namespace psring::net::test {

/// As PollTransport waits, without the spinning.
inline std::optional<Message> receive(Channel& channel, Moment deadline) {
  for (;;) {
    if (auto message = channel.try_receive()) return message;
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - SystemClock().now());
    if (left <= std::chrono::milliseconds(0)) return std::nullopt;
    if (!channel.arm()) continue;
    pollfd item{channel.wait_fd(), POLLIN, 0};
    if (::poll(&item, 1, static_cast<int>(left.count())) > 0) channel.woken();
  }
}

inline Message next(Channel& channel) {
  auto message = receive(channel, in(20));
  REQUIRE(message);
  return std::move(*message);
}

inline FrameHeader header_of(const JobKey& key, Peer self, FrameType type, std::size_t payload_bytes,
                             std::uint64_t step = 0) {
  FrameHeader header;
  header.type = type;
  header.dtype = DType::u8;
  header.job = key.job_id();
  header.sender_role = self.role;
  header.sender_rank = self.rank;
  header.payload_bytes = payload_bytes;
  header.step = step;
  header.sequence = step;
  return header;
}

inline std::vector<std::byte> pattern(std::size_t size, std::uint32_t seed = 1) {
  std::vector<std::byte> bytes(size);
  for (std::byte& byte : bytes) {
    seed = seed * 1664525 + 1013904223;
    byte = static_cast<std::byte>(seed >> 24);
  }
  return bytes;
}

inline bool same(std::span<const std::byte> a, std::span<const std::byte> b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size()) == 0);
}

/// Two workers; worker 1 has connected to worker 0.
struct Pair {
  explicit Pair(std::size_t streams = 1, bool encrypt = false)
      : low(make_tcp_channel({.key = key, .self = {worker(0), 0}, .encrypt = encrypt})),
        high(make_tcp_channel({.key = key, .self = {worker(1), 0}, .encrypt = encrypt, .streams = streams})),
        endpoint(low->listen("127.0.0.1")) {
    std::jthread other([&] { low->await_links({worker(1)}, in(20)); });
    high->connect({{worker(0), endpoint}}, in(20));
  }

  void send(std::uint32_t from, std::span<const std::byte> payload, std::uint64_t step = 0) const {
    const Peer self = worker(from);
    (from == 0 ? low : high)
        ->send(worker(1 - from), header_of(key, self, FrameType::push, payload.size(), step), payload);
  }

  JobKey key = JobKey::generate();
  std::unique_ptr<TcpChannel> low;
  std::unique_ptr<TcpChannel> high;
  std::string endpoint;
};

}  // namespace psring::net::test
