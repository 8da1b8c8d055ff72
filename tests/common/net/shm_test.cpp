// Tests the promises of shared memory beyond every transport: no copies, and deaths noticed.
#include <csignal>

#include <catch2/catch.hpp>
#include <sys/wait.h>
#include <unistd.h>

#include <psring/common/device/buffer.h>
#include <psring/common/net/host.h>
#include <psring/common/net/shm/link.h>
#include <psring/tests/support/shm_cluster.h>
#include <psring/tests/support/shm_frames.h>

using namespace psring;
using namespace psring::net;
using namespace psring::net::test;

TEST_CASE("what lies in the arena is not copied, there or back") {
  ShmCluster cluster(2);
  Transport& server = *cluster.server;
  MemoryLedger ledger;
  Buffer gradients(1 << 20, Category::gradients, ledger, cluster.arenas[1].get());
  Buffer parameters(1 << 20, Category::parameters, ledger, cluster.arenas[1].get());
  const std::size_t n = gradients.size_bytes() / sizeof(float);
  gradients.as<float>()[n - 1] = 4;

  FrameHeader ask = frame(FrameType::push_pull, {512, 512 + n});
  ask.dest = cluster.arenas[1]->mark(parameters.bytes().data());
  cluster.clients[1]->send(kServer, ask, gradients.bytes());
  {
    const Message message = next(server);
    REQUIRE(message.payload.size() == n * sizeof(float));
    REQUIRE(message.reply_space.size() == n * sizeof(float));
    // One page in two places: what is changed here is seen there, and the other way round.
    gradients.as<float>()[0] = 7;
    const auto* sum = reinterpret_cast<const float*>(message.payload.data());
    CHECK(sum[0] == 7);
    CHECK(sum[n - 1] == 4);
    auto* reply = reinterpret_cast<float*>(message.reply_space.data());
    reply[n - 1] = 2.5F;
    FrameHeader answer = message.header;
    answer.type = FrameType::values;
    server.send(worker(1), answer, message.reply_space);
  }
  const Message answer = next(*cluster.clients[1]);
  CHECK(answer.payload.data() == parameters.bytes().data());
  CHECK(answer.payload.size() == parameters.size_bytes());
  CHECK(parameters.as<float>()[n - 1] == 2.5F);
  CHECK(server.describe(worker(1)) == "shared memory");
}

TEST_CASE("an answer finds space only where one was asked for") {
  ShmCluster cluster(1, 1 << 16);
  Transport& client = *cluster.clients[0];
  std::byte* const base = cluster.arenas[0]->base();
  FrameHeader pull = frame(FrameType::pull, {0, 256});
  client.send(kServer, pull, {});
  CHECK(next(*cluster.server).reply_space.empty());
  pull.dest = cluster.arenas[0]->mark(base + (1 << 16) - 1024);
  client.send(kServer, pull, {});
  CHECK(next(*cluster.server).reply_space.size() == 1024);
  FrameHeader push = frame(FrameType::push, {0, 256});
  push.dest = pull.dest;
  client.send(kServer, push, {});
  CHECK(next(*cluster.server).reply_space.empty());

  const auto beyond = GENERATE(values<std::uint64_t>({(1 << 16) - 1024 + 1 + 4, (1 << 16) + 2, UINT64_MAX, 2}));
  pull.dest = beyond;  // behind the end, far behind it, and not on an element
  client.send(kServer, pull, {});
  const Error error = error_of([&] { cluster.server->receive(in(10)); });
  CHECK(error.kind() == ErrorKind::protocol);
  CHECK(names(error, "worker 0"));
}

TEST_CASE("payloads outside of the arena wait for room in order, which kept messages do not take") {
  ShmCluster cluster(1);
  Transport& client = *cluster.clients[0];
  static constexpr std::size_t kCount = 30;
  std::vector<std::vector<std::uint32_t>> sent;
  std::size_t bytes = 0;
  for (std::uint32_t i = 0; i < kCount; ++i) {
    sent.emplace_back(500'000 + i * 10'007, i);
    FrameHeader header = frame(FrameType::push);
    header.step = i;
    client.send(kServer, header, std::as_bytes(std::span(sent.back())));
    bytes += sent.back().size() * sizeof(std::uint32_t);
  }
  REQUIRE(bytes > 3 * ShmLink::kBounceBytes);
  CHECK(client.in_flight_bytes(kServer) > bytes - ShmLink::kBounceBytes);
  std::vector<Message> held;
  for (std::size_t i = 0; i < kCount; ++i) {
    std::optional<Message> message;
    for (int looks = 0; looks < 10 && !message; ++looks) {
      client.receive(Moment::min());  // uses the room that the server has made
      message = cluster.server->receive(Moment::min());
    }
    REQUIRE(message);
    CHECK(message->header.step == i);
    REQUIRE(message->payload.size() == sent[i].size() * sizeof(std::uint32_t));
    REQUIRE(std::memcmp(message->payload.data(), sent[i].data(), message->payload.size()) == 0);
    held.push_back(std::move(*message));
  }
  CHECK(client.in_flight_bytes(kServer) == 0);
  for (std::size_t i = 0; i < kCount; ++i)
    CHECK(std::memcmp(held[i].payload.data(), sent[i].data(), held[i].payload.size()) == 0);
}

TEST_CASE("a sender that sleeps is woken when there is room again") {
  ShmCluster cluster(1);
  static constexpr std::size_t kCount = 300;
  const std::vector<std::byte> data(std::size_t{1} << 20, std::byte{5});
  std::jthread sender([&](const std::stop_token& stop) {
    Transport& client = *cluster.clients[0];
    for (std::size_t i = 0; i < kCount; ++i) client.send(kServer, frame(FrameType::push), data);
    while (client.in_flight_bytes(kServer) > 0 && !stop.stop_requested()) client.receive(kNever);
  });
  const auto wake = [&](void*) {
    sender.request_stop();
    cluster.clients[0]->wake();
  };
  const std::unique_ptr<void, decltype(wake)> at_end(&cluster, wake);
  for (std::size_t i = 0; i < kCount; ++i) {
    const Message message = next(*cluster.server);
    REQUIRE(message.payload.size() == data.size());
    // Slower than the sender's patience, now and then.
    for (const Moment until = in(i % 30 == 0 ? 0.001 : 0); SystemClock().now() < until;) {
    }
  }
}

TEST_CASE("messages outlive their link and the channel") {
  auto cluster = std::make_unique<ShmCluster>(1);
  const std::vector<std::byte> data(100'000, std::byte{6});
  cluster->clients[0]->send(kServer, frame(FrameType::push, {}, DType::u8), data);
  cluster->clients[0]->send(kServer, frame(FrameType::push), {cluster->arenas[0]->base(), 4096});
  const Message bounced = next(*cluster->server);
  const Message referred = next(*cluster->server);
  cluster.reset();
  CHECK(std::memcmp(bounced.payload.data(), data.data(), data.size()) == 0);
  CHECK(referred.payload[4095] == std::byte{0});
}

TEST_CASE("a client that is killed is lost, once, after what it had sent") {
  const JobKey key = JobKey::generate();
  const std::string name = fresh_name(key);
  int go[2];
  int sent[2];
  REQUIRE(::pipe(go) == 0);
  REQUIRE(::pipe(sent) == 0);
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    char byte = 0;
    if (::read(go[0], &byte, 1) != 1) ::_exit(1);
    Arena arena(1 << 20);
    ByteLedger ledger;
    const auto client =
        over(connect_shm({key, {worker(3), 0}}, arena, {{kServer, name}}, in(20)), worker(3), key, ledger);
    for (int i = 0; i < 3; ++i) client->send(kServer, frame(FrameType::push), {arena.base(), 64});
    if (::write(sent[1], "s", 1) != 1) ::_exit(1);
    client->receive(kNever);
    ::_exit(1);
  }
  ByteLedger ledger;
  const auto server = over(listen_shm({key, {kServer, 0}}, name), kServer, key, ledger);
  REQUIRE(::write(go[1], "g", 1) == 1);
  ::close(go[0]);
  ::close(go[1]);
  CHECK(next(*server).header.sender() == worker(3));
  char byte = 0;
  REQUIRE(::read(sent[0], &byte, 1) == 1);
  ::close(sent[0]);
  ::close(sent[1]);
  ::kill(child, SIGKILL);
  CHECK(::waitpid(child, nullptr, 0) == child);
  for (int i = 0; i < 2; ++i) CHECK(next(*server).payload.size() == 64);
  const Error error = error_of([&] { server->receive(in(20)); });
  CHECK(error.kind() == ErrorKind::peer_lost);
  CHECK(names(error, "worker 3"));
  CHECK_FALSE(server->receive(in(0.01)));
  CHECK(error_of([&] { server->send(worker(3), frame(FrameType::values), {}); }).kind() == ErrorKind::peer_lost);
}

TEST_CASE("a server that goes is lost to its client, asleep or not") {
  ShmCluster cluster(1);
  std::jthread killer([&] { cluster.server.reset(); });
  const Error error = error_of([&] { cluster.clients[0]->receive(in(20)); });
  CHECK(error.kind() == ErrorKind::peer_lost);
  CHECK(names(error, "server 0"));
}

TEST_CASE("a worker that comes again is taken, its loss told first; a second one of its name is not") {
  ShmCluster cluster(1);
  Arena arena(4096);
  const ShmOptions again{cluster.key, {worker(0), 1}};
  {
    const Attendant attendant(*cluster.server);
    const Error error = error_of([&] { connect_shm(again, arena, {{kServer, cluster.name}}, in(10)); });
    CHECK(error.kind() == ErrorKind::unauthorised);
    CHECK(names(error, "linked already"));
  }
  cluster.clients.clear();
  const Error error = error_of([&] { cluster.server->receive(in(10)); });
  CHECK(error.kind() == ErrorKind::peer_lost);
  std::unique_ptr<Channel> channel;
  const Attendant attendant(*cluster.server);
  channel = connect_shm(again, arena, {{kServer, cluster.name}}, in(10));
  CHECK(channel->reaches(kServer));
}

TEST_CASE("one client of several servers") {
  const JobKey key = JobKey::generate();
  ByteLedger ledger;
  std::vector<std::unique_ptr<Transport>> servers;
  std::map<Peer, std::string> names_of;
  for (std::uint32_t i = 0; i < 3; ++i) {
    const Peer self{Role::server, i};
    names_of[self] = shm_name(key.job_id(), self);
    servers.push_back(over(listen_shm({key, {self, 0}}, names_of[self]), self, key, ledger));
  }
  Arena arena(4096);
  std::unique_ptr<Channel> channel;
  {
    const Attendant a(*servers[0]), b(*servers[1]), c(*servers[2]);
    channel = connect_shm({key, {worker(0), 0}}, arena, names_of, in(10));
  }
  const auto client = over(std::move(channel), worker(0), key, ledger);
  for (const auto& [peer, name] : names_of) client->send(peer, frame(FrameType::pull), {});
  for (std::uint32_t i = 0; i < 3; ++i) {
    CHECK(next(*servers[i]).header.sequence == 0);
    servers[i]->send(worker(0), frame(FrameType::values), {});
  }
  for (int i = 0; i < 3; ++i) next(*client);
}

TEST_CASE("a host has one name") {
  CHECK(host_id() == host_id());
  CHECK(host_id().size() > 36);
}
