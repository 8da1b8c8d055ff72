#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <span>
#include <utility>

#include <psring/bench/model_step.h>
#include <psring/bench/predict/measure.h>
#include <psring/common/base/byte_ledger.h>
#include <psring/common/base/memory_ledger.h>
#include <psring/common/base/system/run_delay.h>
#include <psring/common/base/text/error.h>
#include <psring/common/device/arena.h>
#include <psring/common/device/buffer.h>
#include <psring/common/net/address.h>
#include <psring/common/net/host.h>
#include <psring/common/net/link_shaping.h>
#include <psring/common/net/tcp/channel.h>
#include <psring/common/proc/data_links.h>

namespace psring::bench {
namespace {

using net::FrameHeader;
using net::FrameType;
using net::Message;
using net::Peer;
using net::Transport;

constexpr auto kPatience = std::chrono::seconds(20);
constexpr std::size_t kSizes[] = {64, 4096, 16384, 65536, 262144, 1048576};
constexpr std::size_t kLargest = kSizes[std::size(kSizes) - 1];
/// A link whose delay is long enough for both ends to fall asleep, as they do in a job.
const net::LinkSpec kShape{10e9, std::chrono::microseconds(500)};

/// The next frame. Throws timeout.
Message next(Transport& transport) {
  const SystemClock clock;
  const Moment deadline = clock.now() + kPatience;
  do {  // receive also returns nothing when bytes have left
    if (std::optional<Message> message = transport.receive(deadline)) return std::move(*message);
  } while (clock.now() < deadline);
  fail(ErrorKind::timeout, "no answer within {} s between two threads", kPatience.count());
}

/// Answers each frame with as many bytes of its own, until a barrier arrives.
void answer(Transport& transport, Peer to, std::span<const std::byte> memory) {
  for (;;) {
    const Message message = next(transport);
    if (message.header.type == FrameType::barrier) return;
    transport.send(to, FrameHeader{.type = FrameType::message}, memory.first(message.payload.size()));
  }
}

/// Two ends within this process, linked.
struct Pair {
  virtual ~Pair() = default;
  virtual Transport& asker() = 0;
  virtual Transport& answerer() = 0;
  virtual Peer answerers_peer() const = 0;  ///< the asker
  virtual Peer askers_peer() const = 0;
  virtual std::span<const std::byte> asked_bytes() const = 0;
  virtual std::span<const std::byte> answered_bytes() const = 0;
};

/// The links of a collective.
class RingPair final : public Pair {
 public:
  RingPair(bool encrypt, std::optional<net::LinkSpec> shape) : shape_(shape) {
    const Moment deadline = SystemClock().now() + kPatience;
    auto answers = make(kAnswerer, encrypt);
    auto asks = make(kAsker, encrypt);
    const std::string endpoint = answers->listen(net::loopback_address());
    auto waits = std::async(std::launch::async, [&] { answers->await_links({kAsker}, deadline); });
    asks->connect({{kAnswerer, endpoint}}, deadline);
    waits.get();
    answerer_ = open(kAnswerer, std::move(answers));
    asker_ = open(kAsker, std::move(asks));
  }
  Transport& asker() override { return *asker_; }
  Transport& answerer() override { return *answerer_; }
  Peer answerers_peer() const override { return kAsker; }
  Peer askers_peer() const override { return kAnswerer; }
  std::span<const std::byte> asked_bytes() const override { return memory_; }
  std::span<const std::byte> answered_bytes() const override { return memory_; }

 private:
  static constexpr Peer kAnswerer{net::Role::worker, 0};
  static constexpr Peer kAsker{net::Role::worker, 1};

  std::unique_ptr<net::TcpChannel> make(Peer self, bool encrypt) const {
    return net::make_tcp_channel({.key = key_, .self = {self, 0}, .encrypt = encrypt});
  }
  std::unique_ptr<Transport> open(Peer self, std::unique_ptr<net::Channel> channel) {
    if (shape_) channel = net::make_shaped_channel(std::move(channel), std::make_shared<net::LinkShaper>(*shape_));
    std::vector<std::unique_ptr<net::Channel>> channels;
    channels.push_back(std::move(channel));
    return net::make_poll_transport(self, key_.job_id(), std::move(channels), ledger_);
  }

  const std::optional<net::LinkSpec> shape_;
  const net::JobKey key_ = net::JobKey::generate();
  const std::vector<std::byte> memory_ = std::vector<std::byte>(kLargest);
  ByteLedger ledger_;
  std::unique_ptr<Transport> answerer_;
  std::unique_ptr<Transport> asker_;
};

constexpr Peer kWorker{net::Role::worker, 0};

net::DataLinks::Options options(Peer self, net::Way way, bool encrypt, std::optional<net::LinkSpec> shape) {
  return net::with_card({.self = {self, 0}, .way = way, .encrypt = encrypt, .host_id = net::host_id(), .link = shape});
}

/// A worker's link to a server.
class ServerPair final : public Pair {
 public:
  ServerPair(net::Way way, bool encrypt, std::optional<net::LinkSpec> shape)
      : arena_(kLargest + (std::size_t{1} << 20)),
        server_(key_, options(kServer, way, encrypt, shape), ledger_),
        worker_(key_, options(kWorker, way, encrypt, shape), ledger_) {
    const net::Member member{.peer = kServer, .host_id = net::host_id(), .addresses = server_.listen()};
    serving_ = &server_.transport();
    buffer_ = Buffer(kLargest, Category::communication, memory_ledger_, &arena_);
    // The server's end takes part in the handshake while it waits for frames; the first frame ends this.
    auto opens = std::async(std::launch::async, [this] { next(*serving_); });
    worker_.connect({member}, arena_, SystemClock().now() + kPatience);
    worker_.transport().send(kServer, FrameHeader{.type = FrameType::message}, {});
    opens.get();
  }
  Transport& asker() override { return worker_.transport(); }
  Transport& answerer() override { return *serving_; }
  Peer answerers_peer() const override { return kWorker; }
  Peer askers_peer() const override { return kServer; }
  std::span<const std::byte> asked_bytes() const override { return buffer_.bytes(); }
  std::span<const std::byte> answered_bytes() const override { return memory_; }

 private:
  static constexpr Peer kServer{net::Role::server, 0};

  const net::JobKey key_ = net::JobKey::generate();
  const std::vector<std::byte> memory_ = std::vector<std::byte>(kLargest);
  ByteLedger ledger_;
  MemoryLedger memory_ledger_;
  Arena arena_;
  Buffer buffer_;
  net::DataLinks server_;
  net::DataLinks worker_;
  Transport* serving_ = nullptr;
};

/// A worker's links to several servers, which have threads.
class ServerStar {
 public:
  ServerStar(net::Way way, bool encrypt, std::optional<net::LinkSpec> shape)
      : arena_(kLargest + (std::size_t{1} << 20)), worker_(key_, options(kWorker, way, encrypt, shape), ledgers_[0]) {
    std::vector<net::Member> members;
    for (std::uint32_t rank = 0; rank < kBatchOfMessages; ++rank) {
      const Peer peer{net::Role::server, rank};
      servers_.push_back(
          std::make_unique<net::DataLinks>(key_, options(peer, way, encrypt, shape), ledgers_[1 + rank]));
      members.push_back({.peer = peer, .host_id = net::host_id(), .addresses = servers_.back()->listen()});
      transports_.push_back(&servers_.back()->transport());
    }
    buffer_ = Buffer(kLargest, Category::communication, memory_ledger_, &arena_);
    std::vector<std::future<void>> opens;
    for (Transport* transport : transports_) opens.push_back(std::async(std::launch::async, [=] { next(*transport); }));
    worker_.connect(members, arena_, SystemClock().now() + kPatience);
    send_all(FrameType::message, 0);
    for (std::future<void>& one : opens) one.get();
  }

  /// Returns the number of messages.
  std::uint64_t exchange_until(Moment end, std::size_t bytes) {
    std::vector<std::future<void>> answers;
    for (Transport* transport : transports_)
      answers.push_back(std::async(std::launch::async, [this, transport] { answer(*transport, kWorker, memory_); }));
    std::uint64_t messages = 0;
    constexpr std::size_t kMessages = kMessagesInRow * kBatchOfMessages;
    for (const SystemClock clock; clock.now() < end; messages += 2 * kMessages) {
      for (std::size_t i = 0; i < kMessagesInRow; ++i) send_all(FrameType::message, bytes);
      for (std::size_t i = 0; i < kMessages; ++i) next(worker_.transport());
    }
    send_all(FrameType::barrier, 0);
    for (std::future<void>& one : answers) one.get();
    return messages;
  }

 private:
  void send_all(FrameType type, std::size_t bytes) {
    for (std::uint32_t rank = 0; rank < kBatchOfMessages; ++rank)
      worker_.transport().send({net::Role::server, rank}, FrameHeader{.type = type}, buffer_.bytes().first(bytes));
  }

  const net::JobKey key_ = net::JobKey::generate();
  const std::vector<std::byte> memory_ = std::vector<std::byte>(kLargest);
  std::array<ByteLedger, 1 + kBatchOfMessages> ledgers_;
  MemoryLedger memory_ledger_;
  Arena arena_;
  Buffer buffer_;
  std::vector<std::unique_ptr<net::DataLinks>> servers_;
  std::vector<Transport*> transports_;
  net::DataLinks worker_;
};

void exchange(Pair& pair, std::size_t bytes) {
  pair.asker().send(pair.askers_peer(), FrameHeader{.type = FrameType::message}, pair.asked_bytes().first(bytes));
  const Message message = next(pair.asker());
  check(message.payload.size() == bytes, "an answer of {} bytes", message.payload.size());
}

/// Runs `body` while a thread answers.
void with_answers(Pair& pair, const std::function<void()>& body) {
  auto answers =
      std::async(std::launch::async, [&] { answer(pair.answerer(), pair.answerers_peer(), pair.answered_bytes()); });
  body();
  pair.asker().send(pair.askers_peer(), FrameHeader{.type = FrameType::barrier}, {});
  answers.get();
}

using MakePair = std::function<std::unique_ptr<Pair>()>;

void measure_hops(const std::string& way, const MakePair& make, std::optional<net::LinkSpec> shape, Nanoseconds each,
                  Measured& into) {
  const std::unique_ptr<Pair> pair = make();
  with_answers(*pair, [&] {
    for (const std::size_t bytes : kSizes) {
      const auto size = static_cast<double>(bytes);
      for (int i = 0; i < 5; ++i) exchange(*pair, bytes);
      const double round = median_seconds([&] { exchange(*pair, bytes); }, each);
      const double card = shape ? seconds(shape->delay) + size * 8 / shape->bits_per_second : 0;
      into["hop." + way].push_back({size, std::max(1e-7, round / 2 - card)});
    }
  });
}

/// Returns the processor time of a message while some threads exchange messages, so that all processors are busy: then
/// receivers hardly spin. `exchanges(i, end)`: exchanges those of thread i until that moment, and returns their number.
double work_of_messages(std::size_t threads, Nanoseconds each,
                        const std::function<std::uint64_t(std::size_t i, Moment end)>& exchanges) {
  std::array<double, 3> rounds{};
  for (double& round : rounds) {
    const Moment end = SystemClock().now() + each;
    const double before = processor_seconds();
    std::vector<std::future<std::uint64_t>> running;
    for (std::size_t i = 0; i < threads; ++i)
      running.push_back(std::async(std::launch::async, [&, i] { return exchanges(i, end); }));
    std::uint64_t messages = 0;
    for (std::future<std::uint64_t>& one : running) messages += one.get();
    round = (processor_seconds() - before) / static_cast<double>(std::max<std::uint64_t>(1, messages));
  }
  std::sort(rounds.begin(), rounds.end());
  return std::max(1e-7, rounds[1]);
}

void measure_work(const std::string& way, const MakePair& make, Nanoseconds each, Measured& into) {
  constexpr std::size_t kPairs = 24;
  std::vector<std::unique_ptr<Pair>> pairs;
  for (std::size_t i = 0; i < kPairs; ++i) pairs.push_back(make());
  for (const std::size_t bytes : kSizes) {
    const double work = work_of_messages(kPairs, each, [&](std::size_t i, Moment end) {
      std::uint64_t messages = 0;
      with_answers(*pairs[i], [&] {
        for (const SystemClock clock; clock.now() < end; messages += 2) exchange(*pairs[i], bytes);
      });
      return messages;
    });
    into["work." + way].push_back({static_cast<double>(bytes), work});
  }
}

/// The processor time of a message while workers send several in a row to many servers at once, and receive their
/// answers: most messages find their receiver awake.
void measure_batches(const std::string& way, const std::function<std::unique_ptr<ServerStar>()>& make, Nanoseconds each,
                     Measured& into) {
  constexpr std::size_t kStars = 3;
  std::vector<std::unique_ptr<ServerStar>> stars;
  for (std::size_t i = 0; i < kStars; ++i) stars.push_back(make());
  for (const std::size_t bytes : kSizes) {
    const double work =
        work_of_messages(kStars, each, [&](std::size_t i, Moment end) { return stars[i]->exchange_until(end, bytes); });
    into["batch." + way].push_back({static_cast<double>(bytes), work});
  }
}

}  // namespace

void measure_messages(Nanoseconds each, Measured& into, const std::set<std::string>& only) {
  const auto wanted = [&](const char* way) { return only.empty() || only.contains(way); };
  const auto measure = [&](const char* way, const MakePair& make, std::optional<net::LinkSpec> shape) {
    measure_hops(way, make, shape, each, into);
    measure_work(way, make, each, into);
  };
  const auto ring = [&](const char* way, bool encrypt, std::optional<net::LinkSpec> shape) {
    if (!wanted(way)) return;
    measure(
        way, [=] { return std::make_unique<RingPair>(encrypt, shape); }, shape);
  };
  const auto server = [&](const char* way, net::Way by, bool encrypt, std::optional<net::LinkSpec> shape) {
    if (!wanted(way)) return;
    measure(
        way, [=] { return std::make_unique<ServerPair>(by, encrypt, shape); }, shape);
    measure_batches(
        way, [=] { return std::make_unique<ServerStar>(by, encrypt, shape); }, each, into);
  };
  ring("ring.tcp", false, std::nullopt);
  ring("ring.tcp-encrypted", true, std::nullopt);
  ring("ring.shaped", false, kShape);
  server("server.shm", net::Way::shm, false, std::nullopt);
  server("server.tcp", net::Way::tcp, false, std::nullopt);
  server("server.tcp-encrypted", net::Way::tcp, true, std::nullopt);
  server("server.shaped", net::Way::automatic, false, kShape);
}

double measure_slowdown(const worker::Model& model, std::size_t batch) {
  constexpr auto kMeasure = std::chrono::milliseconds(300);
  ModelStep step(model, batch);
  step.run();
  RingPair pair(false, std::nullopt);
  const double alone = median_seconds([&] { step.run(); }, kMeasure);
  std::atomic<bool> over = false;
  double beside = 0;
  with_answers(pair, [&] {
    auto traffic = std::async(std::launch::async, [&] {
      while (!over) exchange(pair, std::size_t{256} << 10);
    });
    beside = median_seconds([&] { step.run(); }, kMeasure);
    over = true;
    traffic.get();
  });
  return std::max(1.0, beside / alone);
}

}  // namespace psring::bench
