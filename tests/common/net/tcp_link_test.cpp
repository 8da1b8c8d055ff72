// A TCP link as its frames see it: the order over several streams, and the end. The sockets are local pairs.
#include <array>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include <catch2/catch.hpp>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <psring/common/base/text/error.h>
#include <psring/common/net/tcp/link.h>

using namespace psring;
using namespace psring::net;

namespace {

constexpr Peer kLow{Role::worker, 0};
constexpr Peer kHigh{Role::worker, 1};

/// Both ends of a link.
struct Ends {
  explicit Ends(std::size_t streams) {
    std::vector<std::unique_ptr<TcpStream>> here;
    std::vector<std::unique_ptr<TcpStream>> there;
    for (std::size_t i = 0; i < streams; ++i) {
      std::array<int, 2> fds{};
      REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds.data()) == 0);
      here.push_back(std::make_unique<TcpStream>(Fd(fds[0]), pool));
      there.push_back(std::make_unique<TcpStream>(Fd(fds[1]), pool));
      sending.push_back(here.back().get());
    }
    sender = std::make_unique<TcpLink>(kHigh, 0, "there:1", std::move(here));
    receiver = std::make_unique<TcpLink>(kLow, 0, "here:1", std::move(there));
  }

  void send(std::uint64_t step, std::span<const std::byte> payload = {}) const {
    FrameHeader header;
    header.type = FrameType::message;
    header.dtype = DType::u8;
    header.step = step;
    header.payload_bytes = payload.size();
    header.end = payload.size();
    sender->send(header, payload);
  }
  std::optional<Message> receive() const {
    receiver->try_all_streams();
    return receiver->receive([](const FrameHeader&) { return std::span<std::byte>(); });
  }

  /// Stands in for epoll, which would tell when the sockets have room again.
  void flush() const {
    for (TcpStream* const stream : sending) stream->on_events(EPOLLOUT);
    sender->flush();
  }

  std::shared_ptr<BlockPool> pool = std::make_shared<BlockPool>();
  std::vector<TcpStream*> sending;  ///< the sender's streams
  std::unique_ptr<TcpLink> sender;
  std::unique_ptr<TcpLink> receiver;
};

}  // namespace

TEST_CASE("frames are delivered in the order of sending, over any number of streams") {
  const std::size_t streams = GENERATE(1, 2, 3, 5);
  const Ends ends(streams);
  CHECK(ends.receiver->streams() == streams);
  CHECK_FALSE(ends.receive());
  for (std::uint64_t step = 0; step < 12; ++step) ends.send(step);
  for (std::uint64_t step = 0; step < 12; ++step) {
    const auto message = ends.receive();
    REQUIRE(message);
    CHECK(message->header.step == step);
  }
  CHECK_FALSE(ends.receive());
}

TEST_CASE("a small frame waits for the large frame before it, which arrives in parts") {
  const Ends ends(2);
  const std::vector<std::byte> large(std::size_t{4} << 20, std::byte{7});
  ends.send(0, large);
  ends.send(1);
  CHECK(ends.sender->unsent());
  CHECK_FALSE(ends.receive());
  std::vector<std::uint64_t> steps;
  for (int i = 0; i < 10'000 && steps.size() < 2; ++i) {
    ends.flush();
    while (const auto message = ends.receive()) steps.push_back(message->header.step);
  }
  CHECK(steps == std::vector<std::uint64_t>{0, 1});
  CHECK_FALSE(ends.sender->unsent());
  CHECK(ends.sender->unsent_bytes() == 0);
}

TEST_CASE("the frames that were sent before the end are delivered, and then the loss is told") {
  Ends ends(3);
  for (std::uint64_t step = 0; step < 4; ++step) ends.send(step);
  CHECK_FALSE(ends.receiver->hung_up());
  ends.sender.reset();
  for (std::uint64_t step = 0; step < 4; ++step) {
    const auto message = ends.receive();
    REQUIRE(message);
    CHECK(message->header.step == step);
  }
  CHECK_THROWS_WITH(ends.receive(), "it closed the connection");
  CHECK(ends.receiver->hung_up());
  CHECK(ends.receiver->settled());
}

TEST_CASE("a link is named after its peer and the peer's address") {
  const Ends ends(1);
  CHECK(ends.sender->name() == "worker 1 at there:1");
  CHECK(ends.sender->peer() == kHigh);
}
