// Tests the promises of every transport, over each of them.
#include <atomic>
#include <cstring>
#include <deque>
#include <functional>
#include <thread>

#include <catch2/catch.hpp>

#include <psring/tests/support/in_process_network.h>
#include <psring/tests/support/shm_cluster.h>
#include <psring/tests/support/tcp_cluster.h>

using namespace psring;
using namespace psring::net;
using namespace psring::net::test;

namespace {

/// A server and its workers over some transport, and what keeps them alive.
struct Network {
  std::shared_ptr<void> owner;
  Transport* server = nullptr;
  std::vector<Transport*> workers;
  ByteLedger* server_ledger = nullptr;
  ByteLedger* first_ledger = nullptr;
};

struct Factory {
  const char* name;
  Network (*make)(std::size_t workers);
};

Network over_shared_memory(std::size_t workers) {
  auto cluster = std::make_shared<ShmCluster>(workers);
  Network network{cluster, cluster->server.get(), {}, &cluster->server_ledger, cluster->ledgers[0].get()};
  for (const auto& client : cluster->clients) network.workers.push_back(client.get());
  return network;
}

Network in_process(std::size_t workers) {
  struct Owner {
    std::deque<ByteLedger> ledgers;
    InProcessNetwork net{77};
    std::vector<std::unique_ptr<Transport>> endpoints;
  };
  auto owner = std::make_shared<Owner>();
  owner->ledgers.resize(workers + 1);
  owner->endpoints.push_back(owner->net.endpoint(kServer, owner->ledgers[0]));
  Network network{owner, owner->endpoints[0].get(), {}, &owner->ledgers[0], &owner->ledgers[1]};
  for (std::uint32_t i = 0; i < workers; ++i) {
    owner->endpoints.push_back(owner->net.endpoint(worker(i), owner->ledgers[i + 1]));
    network.workers.push_back(owner->endpoints.back().get());
  }
  return network;
}

template <std::size_t kStreams, bool kEncrypt>
Network over_tcp(std::size_t workers) {
  auto cluster = std::make_shared<TcpCluster>(workers, kStreams, kEncrypt);
  Network network{cluster, cluster->server.get(), {}, &cluster->server_ledger, cluster->ledgers[0].get()};
  for (const auto& client : cluster->clients) network.workers.push_back(client.get());
  return network;
}

Factory any_transport() {
  return GENERATE(values<Factory>({{"in process", in_process},
                                   {"shared memory", over_shared_memory},
                                   {"tcp", over_tcp<1, false>},
                                   {"tcp, 3 streams", over_tcp<3, false>},
                                   {"tcp, encrypted", over_tcp<2, true>}}));
}

FrameHeader frame(FrameType type, std::uint64_t step = 0) {
  FrameHeader header;
  header.type = type;
  header.dtype = DType::u8;
  header.step = step;
  return header;
}

std::vector<std::byte> pattern(std::size_t bytes, std::size_t seed) {
  std::vector<std::byte> data(bytes);
  for (std::size_t i = 0; i < bytes; ++i) data[i] = static_cast<std::byte>((i * 2654435761U + seed * 97) >> 7);
  return data;
}

bool same(std::span<const std::byte> a, std::span<const std::byte> b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size()) == 0);
}

/// Answers each frame with the same payload, until it is woken.
class Echo {
 public:
  explicit Echo(Transport& server) : server_(server), thread_([this] { run(); }) {}
  ~Echo() {
    done_ = true;
    server_.wake();
  }

 private:
  void run() {
    std::deque<Message> held;  // what is sent from a message's memory must not be let go before
    while (!done_) {
      const std::optional<Message> message = server_.receive(kNever);
      if (!message) continue;  // woken, or bytes have left
      FrameHeader answer = message->header;
      answer.type = FrameType::values;
      server_.send(message->header.sender(), answer, message->payload);
      held.push_back(*message);
      if (server_.in_flight_bytes(held.back().header.sender()) == 0) held.clear();
    }
  }

  Transport& server_;
  std::atomic<bool> done_{false};
  std::jthread thread_;
};

}  // namespace

TEST_CASE("payloads of every size come back as they went") {
  const Factory factory = any_transport();
  INFO(factory.name);
  const Network net = factory.make(1);
  const Echo echo(*net.server);
  std::uint64_t sequence = 0;
  for (const std::size_t bytes :
       {std::size_t{0}, std::size_t{1}, std::size_t{63}, std::size_t{64}, std::size_t{4096}, std::size_t{65537},
        std::size_t{1} << 20, std::size_t{8} << 20, kMaxPayloadBytes, std::size_t{3}}) {
    const auto sent = pattern(bytes, sequence);
    FrameHeader header = frame(FrameType::push, 1000 + sequence);
    header.dest = 0xABCD;
    net.workers[0]->send(kServer, header, sent);
    CAPTURE(bytes);
    std::optional<Message> answer;  // `receive` also ends when bytes have left
    for (const Moment deadline = in(20); !answer && SystemClock().now() < deadline;)
      answer = net.workers[0]->receive(deadline);
    REQUIRE(answer);
    REQUIRE(same(answer->payload, sent));
    CHECK(answer->header.type == FrameType::values);
    CHECK(answer->header.sender() == kServer);
    CHECK(answer->header.step == 1000 + sequence);
    CHECK(answer->header.dest == 0xABCD);
    CHECK(answer->header.sequence == sequence++);
    CHECK(answer->header.payload_bytes == bytes);
  }
  CHECK_THROWS_AS(net.workers[0]->send(kServer, frame(FrameType::push), pattern(kMaxPayloadBytes + 1, 0)), Error);
}

TEST_CASE("each peer's frames arrive in its order, none lost, none twice") {
  const Factory factory = any_transport();
  INFO(factory.name);
  static constexpr std::uint64_t kFrames = 100'000;
  static constexpr std::size_t kWorkers = 3;
  const Network net = factory.make(kWorkers);
  std::vector<std::uint64_t> numbers(kFrames);
  for (std::uint64_t i = 0; i < kFrames; ++i) numbers[i] = i;
  std::vector<std::jthread> threads;
  for (Transport* client : net.workers)
    threads.emplace_back([client, &numbers] {
      for (std::uint64_t i = 0; i < kFrames; ++i)
        client->send(kServer, frame(FrameType::push, i), std::as_bytes(std::span(&numbers[i], 1)));
      // Frames that had no room leave while the sender receives; receive also ends when some of them have left. One
      // answer tells that all have arrived.
      for (const Moment deadline = in(60); !client->receive(deadline) && SystemClock().now() < deadline;) {
      }
    });
  std::vector<std::uint64_t> next(kWorkers, 0);
  bool good = true;
  for (std::uint64_t i = 0; i < kWorkers * kFrames; ++i) {
    const auto message = net.server->receive(in(60));
    REQUIRE(message);
    const std::uint32_t rank = message->header.sender_rank;
    std::uint64_t number = 0;
    REQUIRE(message->payload.size() == sizeof number);
    std::memcpy(&number, message->payload.data(), sizeof number);
    good = good && message->header.step == next[rank] && message->header.sequence == next[rank] && number == next[rank];
    if (++next[rank] == kFrames) net.server->send(worker(rank), frame(FrameType::push_ack), {});
  }
  CHECK(good);
  CHECK(next == std::vector<std::uint64_t>(kWorkers, kFrames));
}

TEST_CASE("a receiver that sleeps is woken by each frame") {
  const Factory factory = any_transport();
  INFO(factory.name);
  const Network net = factory.make(2);
  const Echo echo(*net.server);
  for (std::uint64_t i = 0; i < 200; ++i) {
    // Long enough for the server to fall asleep, and for us too, now and then.
    CHECK_FALSE(net.workers[i % 2]->receive(in(static_cast<double>(i % 8) * 20e-6)));
    net.workers[i % 2]->send(kServer, frame(FrameType::pull, i), {});
    const auto answer = net.workers[i % 2]->receive(in(20));
    REQUIRE(answer);
    CHECK(answer->header.step == i);
  }
}

TEST_CASE("receive ends at its deadline") {
  const Factory factory = any_transport();
  INFO(factory.name);
  const Network net = factory.make(1);
  const Moment deadline = in(0.03);
  CHECK_FALSE(net.server->receive(deadline));
  const Moment after = SystemClock().now();
  CHECK(after >= deadline);
  CHECK(after < deadline + std::chrono::seconds(5));
  CHECK_FALSE(net.server->receive(Moment::min()));
}

TEST_CASE("wake ends one receive: the one that waits, or the next") {
  const Factory factory = any_transport();
  INFO(factory.name);
  const Network net = factory.make(1);
  net.server->wake();
  CHECK_FALSE(net.server->receive(kNever));
  for (int i = 0; i < 50; ++i) {
    std::jthread waker([&] { net.server->wake(); });
    CHECK_FALSE(net.server->receive(kNever));
  }
  // None is left: this one waits for the frame.
  net.workers[0]->send(kServer, frame(FrameType::pull, 5), {});
  const auto message = net.server->receive(in(20));
  REQUIRE(message);
  CHECK(message->header.step == 5);
}

TEST_CASE("messages outlive the ones after them, whatever the order in which they are let go") {
  const Factory factory = any_transport();
  INFO(factory.name);
  const Network net = factory.make(1);
  static constexpr std::size_t kCount = 40;
  static constexpr std::size_t kBytes = 200'000;
  std::vector<std::vector<std::byte>> sent;
  std::vector<Message> held;
  for (std::size_t round = 0; round < 5; ++round) {
    sent.clear();
    for (std::size_t i = 0; i < kCount; ++i) {
      sent.push_back(pattern(kBytes + i, round * kCount + i));
      net.workers[0]->send(kServer, frame(FrameType::push, i), sent.back());
    }
    for (std::size_t i = 0; i < kCount; ++i) {
      std::optional<Message> message;
      for (const Moment deadline = in(20); !message && SystemClock().now() < deadline;) {
        CHECK_FALSE(net.workers[0]->receive(Moment::min()));  // what had no room goes while the sender receives
        message = net.server->receive(in(0.001));
      }
      REQUIRE(message);
      held.push_back(std::move(*message));
    }
    for (std::size_t i = 0; i < kCount; ++i) REQUIRE(same(held[i].payload, sent[i]));
    std::jthread elsewhere([&] {
      for (std::size_t i = 1; i < kCount; i += 2) held[i] = {};
    });
    elsewhere.join();
    for (std::size_t i = 0; i < kCount; i += 2) REQUIRE(same(held[i].payload, sent[i]));
    held.clear();
  }
}

TEST_CASE("bytes are counted by operation and peer, start-up apart") {
  const Factory factory = any_transport();
  INFO(factory.name);
  const Network net = factory.make(1);
  const auto data = pattern(1000, 1);
  net.workers[0]->send(kServer, frame(FrameType::push), data);
  FrameHeader initial = frame(FrameType::initial);
  initial.flags = FrameHeader::kStartUp;
  net.workers[0]->send(kServer, initial, data);
  for (int i = 0; i < 2; ++i) REQUIRE(net.server->receive(in(20)));
  using Direction = ByteLedger::Direction;
  for (const char* operation : {"push", "start-up"}) {
    CHECK(net.first_ledger->snapshot().at({Direction::sent, operation, "server 0"}).payload == 1000);
    const ByteCount received = net.server_ledger->snapshot().at({Direction::received, operation, "worker 0"});
    CHECK(received.messages == 1);
    CHECK(received.payload == 1000);
    CHECK(received.framing >= kHeaderBytes);
  }
  CHECK(net.server_ledger->snapshot().size() == 2);
}

TEST_CASE("a peer that was never there is lost") {
  const Factory factory = any_transport();
  INFO(factory.name);
  const Network net = factory.make(1);
  try {
    net.server->send(worker(9), frame(FrameType::values), {});
    FAIL("sent to nobody");
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::peer_lost);
    CHECK(std::string(error.what()).find("worker 9") != std::string::npos);
  }
  CHECK(net.server->in_flight_bytes(worker(9)) == 0);
  CHECK_FALSE(net.server->describe(worker(0)).empty());
}

TEST_CASE("in process, an endpoint that is gone is lost, and may come again") {
  ByteLedger ledger;
  InProcessNetwork net;
  const auto server = net.endpoint(kServer, ledger);
  auto client = net.endpoint(worker(0), ledger);
  CHECK_THROWS_AS(net.endpoint(worker(0), ledger), Error);
  server->send(worker(0), frame(FrameType::push_ack), {});
  client.reset();
  CHECK_THROWS_AS(server->send(worker(0), frame(FrameType::push_ack), {}), Error);
  client = net.endpoint(worker(0), ledger);
  server->send(worker(0), frame(FrameType::push_ack, 3), {});
  const auto message = client->receive(in(1));
  REQUIRE(message);
  CHECK(message->header.step == 3);
}

TEST_CASE("frames of another job are a breach of the protocol") {
  const JobKey key = JobKey::generate();
  const std::string name = fresh_name(key);
  ByteLedger ledger;
  const auto server = over(listen_shm({key, {kServer, 0}}, name), kServer, key, ledger);
  Arena arena(4096);
  std::vector<std::unique_ptr<Channel>> channels;
  {
    const Attendant attendant(*server);
    channels.push_back(connect_shm({key, {worker(0), 0}}, arena, {{kServer, name}}, in(10)));
  }
  const auto client = make_poll_transport(worker(0), key.job_id() + 1, std::move(channels), ledger);
  client->send(kServer, frame(FrameType::push), {});
  try {
    server->receive(in(10));
    FAIL("taken");
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::protocol);
    CHECK(std::string(error.what()).find("worker 0") != std::string::npos);
  }
}
