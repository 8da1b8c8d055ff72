// Tests who may link by shared memory: keys, strangers, and peers that write what they like into it.
#include <atomic>
#include <cstring>
#include <random>

#include <catch2/catch.hpp>
#include <sys/epoll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <psring/common/base/system/standard_files.h>
#include <psring/common/net/shm/link.h>
#include <psring/common/net/shm/unix_handshake.h>
#include <psring/common/net/unix_socket.h>
#include <psring/tests/support/shm_cluster.h>
#include <psring/tests/support/shm_frames.h>

using namespace psring;
using namespace psring::net;
using namespace psring::net::test;

namespace {

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
