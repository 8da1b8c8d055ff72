#include <algorithm>
#include <atomic>
#include <chrono>
#include <deque>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include <psring/bench/model_step.h>
#include <psring/bench/predict/measure.h>
#include <psring/common/base/byte_ledger.h>
#include <psring/common/base/median.h>
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
/// A way of messages, by its name in a fit.
struct MessageWay {
  const char* name;
  std::optional<net::Way> to_servers;  ///< none: between the workers of a collective
  bool encrypt = false;
  std::optional<net::LinkSpec> shape = std::nullopt;
};

/// A link whose delay is long enough for both ends to fall asleep, as they do in a job.
const net::LinkSpec kShape{10e9, std::chrono::microseconds(500)};
const MessageWay kWays[] = {{"ring.tcp", std::nullopt},
                            {"ring.tcp-encrypted", std::nullopt, true},
                            {"ring.shaped", std::nullopt, false, kShape},
                            {"server.shm", net::Way::shm},
                            {"server.tcp", net::Way::tcp},
                            {"server.tcp-encrypted", net::Way::tcp, true},
                            {"server.shaped", net::Way::automatic, false, kShape}};

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

/// Linked ends within this process: one asks, and each of the others answers.
struct Star {
  virtual ~Star() = default;

  Peer asks;
  Transport* asker = nullptr;
  std::vector<std::pair<Peer, Transport*>> answerers;
  std::span<const std::byte> asked;  ///< payload, of which frames carry a part
  std::span<const std::byte> answered;

 protected:
  const net::JobKey key_ = net::JobKey::generate();
  const std::vector<std::byte> memory_ = std::vector<std::byte>(kLargest);
};

/// The links of a collective: two ends.
class RingStar final : public Star {
 public:
  explicit RingStar(const MessageWay& way) : way_(way) {
    const Moment deadline = SystemClock().now() + kPatience;
    auto answers = make(kAnswerer);
    auto asks_them = make(kAsker);
    const std::string endpoint = answers->listen(net::loopback_address());
    auto waits = std::async(std::launch::async, [&] { answers->await_links({kAsker}, deadline); });
    asks_them->connect({{kAnswerer, endpoint}}, deadline);
    waits.get();
    answerer_ = open(kAnswerer, std::move(answers));
    asker_ = open(kAsker, std::move(asks_them));
    asks = kAsker;
    asker = asker_.get();
    answerers = {{kAnswerer, answerer_.get()}};
    asked = answered = memory_;
  }

 private:
  static constexpr Peer kAnswerer{net::Role::worker, 0};
  static constexpr Peer kAsker{net::Role::worker, 1};

  std::unique_ptr<net::TcpChannel> make(Peer self) const {
    return net::make_tcp_channel({.key = key_, .self = {self, 0}, .encrypt = way_.encrypt});
  }
  std::unique_ptr<Transport> open(Peer self, std::unique_ptr<net::Channel> channel) {
    if (way_.shape)
      channel = net::make_shaped_channel(std::move(channel), std::make_shared<net::LinkShaper>(*way_.shape));
    std::vector<std::unique_ptr<net::Channel>> channels;
    channels.push_back(std::move(channel));
    return net::make_poll_transport(self, key_.job_id(), std::move(channels), ledger_);
  }

  const MessageWay& way_;
  ByteLedger ledger_;
  std::unique_ptr<Transport> answerer_;
  std::unique_ptr<Transport> asker_;
};

/// A worker's links to one or several servers: the worker asks.
class ServerStar final : public Star {
 public:
  ServerStar(const MessageWay& way, std::size_t servers)
      : ledgers_(1 + servers),
        arena_(kLargest + (std::size_t{1} << 20)),
        worker_(key_, options(kWorker, way), ledgers_[0]) {
    std::vector<net::Member> members;
    for (std::uint32_t rank = 0; rank < servers; ++rank) {
      const Peer peer{net::Role::server, rank};
      servers_.push_back(std::make_unique<net::DataLinks>(key_, options(peer, way), ledgers_[1 + rank]));
      members.push_back({.peer = peer, .host_id = net::host_id(), .addresses = servers_.back()->listen()});
      answerers.emplace_back(peer, &servers_.back()->transport());
    }
    buffer_ = Buffer(kLargest, Category::communication, memory_ledger_, &arena_);
    // A server's end takes part in the handshake while it waits for frames; the first frame ends this.
    std::vector<std::future<void>> opens;
    for (const auto& server : servers_)
      opens.push_back(std::async(std::launch::async, [&] { next(server->transport()); }));
    worker_.connect(members, arena_, SystemClock().now() + kPatience);
    for (const net::Member& member : members)
      worker_.transport().send(member.peer, FrameHeader{.type = FrameType::message}, {});
    for (std::future<void>& one : opens) one.get();
    asks = kWorker;
    asker = &worker_.transport();
    asked = buffer_.bytes();
    answered = memory_;
  }

 private:
  static constexpr Peer kWorker{net::Role::worker, 0};

  static net::DataLinks::Options options(Peer self, const MessageWay& way) {
    return net::with_card({.self = {self, 0},
                           .way = *way.to_servers,
                           .encrypt = way.encrypt,
                           .host_id = net::host_id(),
                           .link = way.shape});
  }

  std::deque<ByteLedger> ledgers_;
  MemoryLedger memory_ledger_;
  Arena arena_;
  Buffer buffer_;
  std::vector<std::unique_ptr<net::DataLinks>> servers_;
  net::DataLinks worker_;
};

std::unique_ptr<Star> open(const MessageWay& way, std::size_t answerers = 1) {
  if (way.to_servers) return std::make_unique<ServerStar>(way, answerers);
  return std::make_unique<RingStar>(way);
}

void send_all(const Star& star, FrameType type, std::size_t bytes) {
  for (const auto& [peer, transport] : star.answerers)
    star.asker->send(peer, FrameHeader{.type = type}, star.asked.first(bytes));
}

/// Sends `in_row` messages to each of the others, and takes their answers.
void exchange(const Star& star, std::size_t bytes, std::size_t in_row = 1) {
  for (std::size_t i = 0; i < in_row; ++i) send_all(star, FrameType::message, bytes);
  for (std::size_t i = 0; i < in_row * star.answerers.size(); ++i) {
    const Message message = next(*star.asker);
    check(message.payload.size() == bytes, "an answer of {} bytes", message.payload.size());
  }
}

/// Runs `body` while threads answer.
void with_answers(const Star& star, const std::function<void()>& body) {
  std::vector<std::future<void>> answers;
  for (const auto& [peer, transport] : star.answerers)
    answers.push_back(
        std::async(std::launch::async, [&star, to = transport] { answer(*to, star.asks, star.answered); }));
  body();
  send_all(star, FrameType::barrier, 0);
  for (std::future<void>& one : answers) one.get();
}

void measure_hops(const MessageWay& way, Nanoseconds each, Measured& into) {
  const auto star = open(way);
  with_answers(*star, [&] {
    for (const std::size_t bytes : kSizes) {
      const auto size = static_cast<double>(bytes);
      for (int i = 0; i < 5; ++i) exchange(*star, bytes);
      const double round = median_seconds([&] { exchange(*star, bytes); }, each);
      const double card = way.shape ? seconds(way.shape->delay) + size * 8 / way.shape->bits_per_second : 0;
      into[std::string("hop.") + way.name].push_back({size, std::max(1e-7, round / 2 - card)});
    }
  });
}

/// Returns the processor time of a message while threads exchange messages, `in_row` before they wait for answers. All
/// processors are busy: then receivers hardly spin.
double work_of_messages(const std::vector<std::unique_ptr<Star>>& stars, std::size_t bytes, std::size_t in_row,
                        Nanoseconds each) {
  std::vector<double> rounds(3);
  for (double& round : rounds) {
    const SystemClock clock;
    const Moment end = clock.now() + each;
    const double before = processor_seconds();
    std::vector<std::future<std::uint64_t>> running;
    for (const auto& star : stars)
      running.push_back(std::async(std::launch::async, [&] {
        std::uint64_t messages = 0;
        with_answers(*star, [&] {
          for (; clock.now() < end; messages += 2 * in_row * star->answerers.size()) exchange(*star, bytes, in_row);
        });
        return messages;
      }));
    std::uint64_t messages = 0;
    for (std::future<std::uint64_t>& one : running) messages += one.get();
    round = (processor_seconds() - before) / static_cast<double>(std::max<std::uint64_t>(1, messages));
  }
  return std::max(1e-7, median(std::move(rounds)));
}

/// `count`: of stars that exchange messages at the same time.
void measure_work(const std::string& line, const MessageWay& way, std::size_t answerers, std::size_t count,
                  std::size_t in_row, Nanoseconds each, Measured& into) {
  std::vector<std::unique_ptr<Star>> stars;
  for (std::size_t i = 0; i < count; ++i) stars.push_back(open(way, answerers));
  for (const std::size_t bytes : kSizes)
    into[line + way.name].push_back({static_cast<double>(bytes), work_of_messages(stars, bytes, in_row, each)});
}

}  // namespace

void measure_messages(Nanoseconds each, Measured& into, const std::set<std::string>& only) {
  for (const MessageWay& way : kWays) {
    if (!only.empty() && !only.contains(way.name)) continue;
    constexpr std::size_t kPairs = 24;
    measure_hops(way, each, into);
    measure_work("work.", way, 1, kPairs, 1, each, into);
    // Workers send several messages in a row to many servers at once: most messages find their receiver awake.
    constexpr std::size_t kStars = 3;
    if (way.to_servers) measure_work("batch.", way, kBatchOfMessages, kStars, kMessagesInRow, each, into);
  }
}

double measure_slowdown(const worker::Model& model, std::size_t batch) {
  constexpr auto kMeasure = std::chrono::milliseconds(300);
  ModelStep step(model, batch);
  step.run();
  const RingStar pair(kWays[0]);
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
