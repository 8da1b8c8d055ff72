// Two roles of one process: frames pass as they are, nothing is counted, and an end that goes is told.
#include <cstring>
#include <thread>
#include <vector>

#include <catch2/catch.hpp>

#include <psring/common/net/local_link.h>
#include <psring/tests/support/values.h>

using namespace psring;
using namespace psring::net;
using test::error_of;

namespace {

constexpr Peer kWorker{Role::worker, 1};
constexpr Peer kServer{Role::server, 1};

struct Process {
  Arena arena{std::size_t{1} << 20};
  LocalLink link{kWorker, kServer};
  ByteLedger bytes;
  std::unique_ptr<Transport> worker = transport(kWorker, link.client_end(arena));
  std::unique_ptr<Transport> server = transport(kServer, link.server_end());

  std::unique_ptr<Transport> transport(Peer self, std::unique_ptr<Channel> end) {
    std::vector<std::unique_ptr<Channel>> channels;
    channels.push_back(std::move(end));
    return make_poll_transport(self, 7, std::move(channels), bytes);
  }
};

FrameHeader header(FrameType type, std::size_t elements = 0) {
  FrameHeader header;
  header.type = type;
  header.set_range({0, elements});
  return header;
}

Message next(Transport& transport) {
  auto message = transport.receive(SystemClock().now() + std::chrono::seconds(30));
  REQUIRE(message);
  return std::move(*message);
}

}  // namespace

TEST_CASE("a push is read where it lies, an answer stored where it is wanted, and no byte is counted") {
  Process process;
  const auto gradient = process.arena.allocate(4096);
  const auto values = process.arena.allocate(4096);
  FrameHeader asked = header(FrameType::push_pull, 1024);
  asked.dest = process.arena.mark(values.data());
  process.worker->send(kServer, asked, gradient);
  const Message message = next(*process.server);
  CHECK(message.header.sender() == kWorker);
  CHECK(message.payload.data() == gradient.data());
  CHECK(message.payload.size() == gradient.size());
  CHECK(message.reply_space.data() == values.data());
  CHECK(message.reply_space.size() == values.size());
  process.server->send(kWorker, header(FrameType::values, 1024), message.reply_space);
  CHECK(next(*process.worker).payload.data() == values.data());
  CHECK(process.bytes.snapshot().empty());
}

TEST_CASE("outside of the arena what is small is copied, as its sender may let go of it") {
  Process process;
  for (const std::size_t size : {std::size_t{5}, kCopiedBytes, kCopiedBytes + 1}) {
    std::vector<std::byte> text(size, std::byte{3});
    process.worker->send(kServer, header(FrameType::layout), text);
    const Message message = next(*process.server);
    CHECK(message.payload.size() == size);
    CHECK((message.payload.data() == text.data()) == (size > kCopiedBytes));
    CHECK(message.reply_space.empty());
    if (size <= kCopiedBytes) {
      std::fill(text.begin(), text.end(), std::byte{0});
      CHECK(message.payload.front() == std::byte{3});
    }
  }
}

TEST_CASE("what is sent before the other end is there waits for it; who sleeps is woken, in order") {
  Arena arena(4096);
  LocalLink link(kWorker, kServer);
  ByteLedger bytes;
  std::vector<std::unique_ptr<Channel>> channels;
  channels.push_back(link.client_end(arena));
  const auto worker = make_poll_transport(kWorker, 7, std::move(channels), bytes);
  worker->send(kServer, header(FrameType::push), {});
  channels.clear();
  channels.push_back(link.server_end());
  const auto server = make_poll_transport(kServer, 7, std::move(channels), bytes);
  CHECK(next(*server).header.sequence == 0);
  constexpr std::uint64_t kFrames = 500;
  std::jthread answering([&] {
    for (std::uint64_t i = 0; i < kFrames; ++i) {
      const auto message = server->receive(kNever);
      server->send(kWorker, message->header, {});
    }
  });
  for (std::uint64_t i = 0; i < kFrames; ++i) {
    FrameHeader mine = header(FrameType::push);
    mine.step = i;
    worker->send(kServer, mine, {});
    CHECK(next(*worker).header.step == i);
  }
}

TEST_CASE("an end that goes is lost to the other, once, after what it had sent") {
  Process process;
  process.server->send(kWorker, header(FrameType::values), {});
  process.server.reset();
  CHECK(next(*process.worker).header.type == FrameType::values);
  CHECK(error_of(ErrorKind::peer_lost, [&] { process.worker->receive(kNever); }) ==
        "server 1 (in this process) has ended");
  CHECK_FALSE(process.worker->receive(Moment::min()));
  CHECK_THAT(error_of(ErrorKind::peer_lost, [&] { process.worker->send(kServer, header(FrameType::push), {}); }),
             Catch::Contains("server 1"));
}

TEST_CASE("one network card for the process") {
  const auto card = std::make_shared<LinkShaper>(parse_link("1gbit"));
  CHECK(LocalLink(kWorker, kServer, card).card() == card);
}
