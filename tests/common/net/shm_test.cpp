// Tests the promises of shared memory beyond every transport: no copies, deaths noticed, hostile peers survived.
#include <atomic>
#include <csignal>
#include <cstring>
#include <functional>
#include <random>

#include <catch2/catch.hpp>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <psring/common/base/system/standard_files.h>
#include <psring/common/device/buffer.h>
#include <psring/common/net/host.h>
#include <psring/common/net/shm/link.h>
#include <psring/common/net/shm/unix_handshake.h>
#include <psring/common/net/unix_socket.h>
#include <psring/tests/support/shm_cluster.h>

using namespace psring;
using namespace psring::net;
using namespace psring::net::test;

namespace {

FrameHeader frame(FrameType type, Range range = {}, DType dtype = DType::f32) {
  FrameHeader header;
  header.type = type;
  header.dtype = dtype;
  header.set_range(range);
  return header;
}

Message next(Transport& transport) {
  auto message = transport.receive(in(20));
  REQUIRE(message);
  return std::move(*message);
}

Error error_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    return error;
  }
  FAIL("no error");
  return {ErrorKind::bug, ""};
}

bool names(const Error& error, const char* what) { return std::string(error.what()).find(what) != std::string::npos; }

// The rings file, as shm_link.h writes it.
constexpr std::size_t kEntryBytes = 192;
constexpr std::size_t kDirectionBytes = 3 * 64 + ShmLink::kEntries * kEntryBytes;
constexpr std::size_t kToServer = 2 * 64 + kDirectionBytes;

using HostileWord = std::atomic<std::uint64_t>;

/// A client that holds the key and then writes into the shared memory whatever it likes.
struct Hostile {
  Hostile(ShmCluster& cluster, std::uint32_t rank)
      : arena(1 << 16), link(worker(rank), kServer, arena), socket(connect_unix(cluster.name, in(10))) {
    const Attendant attendant(*cluster.server);
    ClientHandshake handshake(cluster.key, {worker(rank), 0}, kServer, cluster.name, random_nonce());
    std::optional<HandshakeFrame> frame = handshake.start();
    while (frame) {
      const auto header = encode(frame->header);
      std::vector<std::byte> bytes(header.begin(), header.end());
      bytes.insert(bytes.end(), frame->payload.begin(), frame->payload.end());
      send_packet(socket, bytes, frame->header.type == FrameType::proof ? passed() : std::vector<int>());
      const Packet packet = receive_packet(socket, in(10));
      const auto answer = std::span(packet.bytes);
      frame = handshake.on_frame(decode(answer.first(kHeaderBytes)), answer.subspan(kHeaderBytes));
    }
    const Fd rings(::dup(link.files()[1]));
    map = std::make_unique<Mapping>(rings, checked_size(rings));
  }
  std::vector<int> passed() const {
    const auto files = link.files();
    return {files.begin(), files.end()};
  }
  HostileWord& word(std::size_t offset) const { return *reinterpret_cast<HostileWord*>(map->data() + offset); }

  /// An entry with a valid header and any place, as the next one.
  void forge(FrameHeader header, std::uint64_t place, std::uint64_t position) const {
    const std::uint64_t head = word(kToServer).load();
    const std::size_t entry = kToServer + 192 + head % ShmLink::kEntries * kEntryBytes;
    const auto bytes = encode(header);
    std::memcpy(map->data() + entry, bytes.data(), bytes.size());
    word(entry + kHeaderBytes) = place;
    word(entry + kHeaderBytes + 8) = position;
    word(kToServer) = head + 1;
  }

  Arena arena;
  ShmLink link;
  Fd socket;
  std::unique_ptr<Mapping> map;
};

FrameHeader honest(const ShmCluster& cluster, std::uint32_t rank, std::uint64_t payload_bytes) {
  FrameHeader header = frame(FrameType::push);
  header.job = cluster.key.job_id();
  header.sender_rank = rank;
  header.payload_bytes = payload_bytes;
  return header;
}

}  // namespace

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

TEST_CASE("without the job's key nobody is let in, and nobody is let go astray") {
  ShmCluster cluster(1);
  Arena arena(4096);
  const JobKey other = JobKey::generate();
  {
    const Attendant attendant(*cluster.server);
    const Error error = error_of([&] {
      connect_shm({other, {worker(1), 0}}, arena, {{kServer, cluster.name}}, in(10));
    });
    CHECK(error.kind() == ErrorKind::unauthorised);
    CHECK(names(error, "server 0"));
    const Peer wrong{Role::server, 5};
    CHECK(error_of([&] {
            connect_shm({cluster.key, {worker(1), 0}}, arena, {{wrong, cluster.name}}, in(10));
          }).kind() == ErrorKind::protocol);
  }
  cluster.clients[0]->send(kServer, frame(FrameType::pull), {});
  CHECK(next(*cluster.server).header.sender() == worker(0));
  CHECK(error_of([&] { cluster.server->send(worker(1), frame(FrameType::values), {}); }).kind() ==
        ErrorKind::peer_lost);
}

TEST_CASE("connecting has a deadline, and listening a name of its own") {
  const JobKey key = JobKey::generate();
  const std::string name = fresh_name(key);
  Arena arena(4096);
  const ShmOptions client{key, {worker(0), 0}};
  CHECK(error_of([&] { connect_shm(client, arena, {{kServer, name}}, in(1)); }).kind() == ErrorKind::peer_lost);
  const auto silent = listen_shm({key, {kServer, 0}}, name);  // nobody attends to it
  CHECK(error_of([&] { connect_shm(client, arena, {{kServer, name}}, in(0.05)); }).kind() == ErrorKind::timeout);
  CHECK(error_of([&] { listen_shm({key, {kServer, 0}}, name); }).kind() == ErrorKind::usage);
  CHECK(error_of([&] { listen_shm({key, {kServer, 0}}, std::string(200, 'x')); }).kind() == ErrorKind::usage);
  Arena local(4096, Arena::Kind::local);
  CHECK(error_of([&] { ShmLink(worker(0), kServer, local); }).kind() == ErrorKind::bug);
}

TEST_CASE("strangers that say nonsense, or nothing, disturb nobody") {
  ShmCluster cluster(1);
  std::mt19937 random(3);
  std::vector<Fd> silent;
  for (int i = 0; i < 200; ++i) {
    const Attendant attendant(*cluster.server);
    Fd socket = connect_unix(cluster.name, in(10));
    std::vector<std::byte> bytes(1 + random() % kMaxPacketBytes);
    for (auto& b : bytes) b = static_cast<std::byte>(random());
    if (i % 10 == 0) {
      silent.push_back(std::move(socket));
      continue;
    }
    send_packet(socket, bytes);
    if (i % 2 != 0) continue;
    const Packet answer = receive_packet(socket, in(10));
    CHECK(decode(std::span(answer.bytes).first(kHeaderBytes)).type == FrameType::refused);
  }
  cluster.clients[0]->send(kServer, frame(FrameType::pull), {});
  CHECK(next(*cluster.server).header.sender() == worker(0));
}

namespace {

/// A client that goes through its handshake packet by packet.
struct SlowClient {
  SlowClient(const ShmCluster& cluster, std::uint32_t rank)
      : arena(4096),
        link(worker(rank), kServer, arena),
        socket(connect_unix(cluster.name, in(20))),
        handshake(cluster.key, {worker(rank), 0}, kServer, cluster.name, random_nonce()) {
    send_frame(socket, handshake.start());
  }
  /// Takes the server's next packet, and answers it.
  void go_on() {
    const Packet packet = receive_packet(socket, in(60));
    const auto [header, payload] = parse_frame(packet);
    if (const auto next = handshake.on_frame(header, payload)) send_frame(socket, *next, link.files());
  }

  Arena arena;
  ShmLink link;
  Fd socket;
  ClientHandshake handshake;
};

}  // namespace

TEST_CASE("many clients whose handshakes begin at once are all let in") {
  raise_open_files_limit();
  constexpr std::uint32_t kClients = 160;
  ShmCluster cluster(0);
  std::vector<std::unique_ptr<SlowClient>> clients;
  for (std::uint32_t rank = 0; rank < kClients; ++rank) clients.push_back(std::make_unique<SlowClient>(cluster, rank));
  const Attendant attendant(*cluster.server);
  for (int packet = 0; packet < 2; ++packet)
    for (const auto& client : clients) client->go_on();
  for (const auto& client : clients) CHECK(client->handshake.open());
}

TEST_CASE("a crowd of silent strangers pushes out its own, not a client of another process") {
  raise_open_files_limit();
  constexpr int kCrowd = 1100;  // more than the server keeps
  ShmCluster cluster(0);
  SlowClient client(cluster, 3);
  int ready[2];
  int done[2];
  REQUIRE(::pipe(ready) == 0);
  REQUIRE(::pipe(done) == 0);
  const pid_t crowd = ::fork();
  REQUIRE(crowd >= 0);
  if (crowd == 0) {
    std::vector<Fd> silent;
    for (int i = 0; i < kCrowd; ++i) silent.push_back(connect_unix(cluster.name, in(60)));
    char byte = 1;
    if (::write(ready[1], &byte, 1) != 1) ::_exit(1);
    ::close(done[1]);
    ::_exit(::read(done[0], &byte, 1) == 0 ? 0 : 1);
  }
  {
    const Attendant attendant(*cluster.server);
    client.go_on();
    char byte = 0;
    REQUIRE(::read(ready[0], &byte, 1) == 1);
    client.go_on();
    CHECK(client.handshake.open());
  }
  ::close(done[1]);
  int status = 0;
  REQUIRE(::waitpid(crowd, &status, 0) == crowd);
  CHECK(status == 0);
}

TEST_CASE("memory that could hurt the server is refused") {
  Arena arena(4096);
  const ShmLink link(worker(0), kServer, arena);
  const auto files = [&] {
    std::vector<Fd> copies;
    for (const int fd : link.files()) copies.emplace_back(::dup(fd));
    return copies;
  };
  CHECK_NOTHROW(ShmLink(kServer, worker(0), files()));
  const auto refused = [&](const auto& spoil) {
    std::vector<Fd> given = files();
    spoil(given);
    return error_of([&] { ShmLink(kServer, worker(0), std::move(given)); }).kind() == ErrorKind::protocol;
  };
  for (std::size_t i = 0; i < ShmLink::kFiles; ++i)
    CHECK(refused([&](std::vector<Fd>& given) { given[i] = Fd(::epoll_create1(0)); }));  // neither memory nor a bell
  CHECK(refused([](std::vector<Fd>& given) { given.pop_back(); }));
  CHECK(refused([](std::vector<Fd>& given) { given[1] = make_memory_file("small", 4096); }));
}

TEST_CASE("entries that point outside of what is shared are a breach of the protocol") {
  ShmCluster cluster(1);
  struct Forged {
    std::uint64_t bytes, place, position;
  };
  const std::uint64_t arena = 1 << 16;
  const std::uint64_t max = UINT64_MAX;
  const std::uint64_t region = ShmLink::kBounceBytes;
  const auto f = GENERATE_COPY(values<Forged>({{64, 1, arena},
                                               {64, 1, arena - 32},
                                               {64, 1, max - 31},
                                               {64, 1, 2},
                                               {kMaxPayloadBytes, 1, 0},
                                               {64, 0, 0},
                                               {0, 1, 0},
                                               {0, 2, 0},
                                               {64, 3, 0},
                                               {64, 2, region - 32},
                                               {128, 2, region - 64},
                                               {64, 2, 8},
                                               {64, 2, 64 * region},
                                               {64, 2, max - 63},
                                               {kMaxPayloadBytes + 1, 2, 0}}));
  Hostile hostile(cluster, 7);
  hostile.forge(honest(cluster, 7, f.bytes), f.place, f.position);
  const Error error = error_of([&] { cluster.server->receive(in(10)); });
  CHECK(error.kind() == ErrorKind::protocol);
  CHECK(names(error, "worker 7"));
  // Only the offender is cut off.
  CHECK_FALSE(cluster.server->receive(in(0.001)));
  CHECK(error_of([&] { cluster.server->send(worker(7), frame(FrameType::values), {}); }).kind() ==
        ErrorKind::peer_lost);
  cluster.clients[0]->send(kServer, frame(FrameType::pull), {});
  CHECK(next(*cluster.server).header.sender() == worker(0));
}

TEST_CASE("nobody speaks in another's name, and indices that cannot be are noticed") {
  ShmCluster cluster(1);
  Hostile hostile(cluster, 7);
  const int what = GENERATE(range(0, 5));
  if (what == 0) hostile.forge(honest(cluster, 0, 0), 0, 0);
  if (what == 1) hostile.word(kToServer) = ShmLink::kEntries + 1;
  if (what == 2) hostile.word(kToServer) = UINT64_MAX;
  if (what < 3) {
    CHECK(error_of([&] { cluster.server->receive(in(10)); }).kind() == ErrorKind::protocol);
    return;
  }
  // The far end of what the server sends: it looks there when it needs room.
  const std::size_t to_client = 2 * 64;
  hostile.word(to_client + (what == 3 ? 64 : 128)) = UINT64_MAX;
  const std::vector<std::byte> data(64);
  const Error error = error_of([&] {
    for (std::size_t i = 0; i <= ShmLink::kEntries; ++i)
      cluster.server->send(worker(7), frame(FrameType::values), what == 3 ? std::span<const std::byte>() : data);
  });
  CHECK(error.kind() == ErrorKind::protocol);
  CHECK(names(error, "worker 7"));
}

TEST_CASE("a client that writes random words into the rings is cut off, and never does more") {
  ShmCluster cluster(0);
  int cut_off = 0;
  for (std::uint32_t seed = 0; seed < 300; ++seed) {
    Hostile hostile(cluster, 7);
    std::mt19937_64 random(seed);
    std::vector<Message> held;
    bool linked = true;
    for (int i = 0; i < 300 && linked; ++i) {
      FrameHeader header = honest(cluster, 7, random() % 3 == 0 ? random() : random() % 1000);
      header.type = static_cast<FrameType>(random() % 17);
      header.set_range({0, random() % 3 == 0 ? random() : 8});
      header.dest = random() % 3 == 0 ? random() : random() % 100 * 4 + 1;
      if (random() % 3 == 0) hostile.forge(header, random() % 4, random() % 2 == 0 ? random() : random() % 4096 * 64);
      if (random() % 3 == 0) hostile.word(random() % (kToServer + kDirectionBytes) / 8 * 8) = random();
      if (random() % 40 == 0) hostile.word(kToServer + random() % 3 * 64) = random() % 2000;
      try {
        if (random() % 4 == 0) cluster.server->send(worker(7), frame(FrameType::values), std::vector<std::byte>(8));
        if (auto message = cluster.server->receive(Moment::min())) {
          unsigned sum = 0;
          for (const std::byte b : message->payload) sum += std::to_integer<unsigned>(b);
          for (std::byte& b : message->reply_space) b = static_cast<std::byte>(sum);
          held.push_back(std::move(*message));
        }
        if (held.size() > 5) held.erase(held.begin() + static_cast<std::ptrdiff_t>(random() % held.size()));
      } catch (const Error& error) {
        REQUIRE(error.kind() == ErrorKind::protocol);
        REQUIRE(names(error, "worker 7"));
        linked = false;
        ++cut_off;
      }
    }
    if (linked) {
      hostile.socket = Fd();
      try {
        while (true) cluster.server->receive(in(10));
      } catch (const Error&) {  // protocol, or lost at last
      }
    }
  }
  CHECK(cut_off > 200);
}

TEST_CASE("a host has one name") {
  CHECK(host_id() == host_id());
  CHECK(host_id().size() > 36);
}
