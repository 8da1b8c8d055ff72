#include <algorithm>
#include <chrono>
#include <cstdint>
#include <future>
#include <limits>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include <psring/cli/doctor/doctor_link.h>
#include <psring/common/base/byte_ledger.h>
#include <psring/common/base/median.h>
#include <psring/common/base/text/error.h>
#include <psring/common/net/address.h>
#include <psring/common/net/tcp/channel.h>
#include <psring/common/net/transport.h>

namespace psring::cli {
namespace {

using net::FrameHeader;
using net::FrameType;
using net::Message;

// Ranks of agents, so that no process of a job takes a doctor for one of its peers.
constexpr net::Peer kAnswerer{net::Role::agent, 0};
constexpr net::Peer kAsker{net::Role::agent, 1};

constexpr std::size_t kPieceBytes = std::size_t{256} << 10;  // the same as the ring's pieces
constexpr std::size_t kMostInFlight = 32;                    // pieces: 8 MiB fill 10 Gbit/s with a delay of 6 ms
constexpr std::size_t kMostRoundTrips = 2000;
constexpr auto kSilence = std::chrono::seconds(10);

/// Returns this host's wall clock in its wire format.
std::int64_t wall_clock_ns() {
  return std::chrono::duration_cast<Nanoseconds>(std::chrono::system_clock::now().time_since_epoch()).count();
}

}  // namespace

struct LinkEnd {
  LinkEnd(const net::JobKey& job_key, net::Peer self)
      : key(job_key),
        me(self),
        channel(net::make_tcp_channel({.key = job_key, .self = {self, 0}, .silence = kSilence})) {}

  /// Call once the link is open.
  void open() {
    std::vector<std::unique_ptr<net::Channel>> channels;
    channels.push_back(std::move(channel));
    transport = net::make_poll_transport(me, key.job_id(), std::move(channels), ledger);
  }

  Message next(net::Peer from) {
    const Moment deadline = clock.now() + kSilence;
    do {  // receive also returns nothing when bytes have left
      if (std::optional<Message> message = transport->receive(deadline)) return std::move(*message);
    } while (clock.now() < deadline);
    fail(ErrorKind::timeout, "{}: nothing for {} s", transport->describe(from), kSilence.count());
  }

  void ask(std::span<const std::byte> sent, std::size_t wanted_bytes) {
    FrameHeader header{.type = FrameType::message};
    header.step = asked++;
    header.dest = wanted_bytes;
    transport->send(kAnswerer, header, sent);
  }

  /// Receives the answer to the oldest request.
  FrameHeader take(std::size_t wanted_bytes) {
    const FrameHeader header = next(kAnswerer).header;
    if (header.type != FrameType::message || header.step != taken++ || header.payload_bytes != wanted_bytes)
      fail(ErrorKind::protocol, "{}: {} {} of {} bytes", transport->describe(kAnswerer), to_string(header.type),
           header.step, header.payload_bytes);
    return header;
  }

  /// Times messages that are answered by as many bytes, `least` of them and more until the time is over, and returns
  /// the median round trip. Estimates the other end's wall clock from the shortest round trip: the clock was read in
  /// its middle, within half its duration.
  double round_trip_s(Nanoseconds each, std::size_t bytes, std::size_t least, LinkFigures& figures) {
    std::vector<double> times;
    const Moment end = clock.now() + each;
    do {
      const std::int64_t wall = wall_clock_ns();
      const Moment start = clock.now();
      ask(std::span(piece).first(bytes), bytes);
      const auto remote = static_cast<std::int64_t>(take(bytes).version);
      const Nanoseconds took = clock.now() - start;
      if (seconds(took) < figures.least_round_trip_s) {
        figures.least_round_trip_s = seconds(took);
        figures.clock_offset_s = seconds(Nanoseconds(remote - wall) - took / 2);
      }
      times.push_back(seconds(took));
    } while (times.size() < least || (times.size() < kMostRoundTrips && clock.now() < end));
    return median(std::move(times));
  }

  /// Each answer permits two new requests, up to a bound, so that a slow link finishes in time and a fast link is kept
  /// busy. The first third is not counted, because TCP is still finding its rate.
  double bytes_per_second(Nanoseconds each, std::span<const std::byte> sent, std::size_t wanted_bytes) {
    const Moment start = clock.now();
    Moment from = start;
    Moment last = start;
    std::size_t pieces = 0;
    std::size_t in_flight = 0;
    std::size_t most = 1;
    for (bool over = false; !over || in_flight > 0;) {
      for (; !over && in_flight < most; ++in_flight) ask(sent, wanted_bytes);
      take(wanted_bytes);
      --in_flight;
      most = std::min(most + 1, kMostInFlight);
      last = clock.now();
      const bool settles = last - start < each / 3;
      ++pieces;
      if (settles) {
        from = last;
        pieces = 0;
      }
      over = last - start >= each;
    }
    return static_cast<double>(pieces * (sent.size() + wanted_bytes)) / seconds(last - from);
  }

  const net::JobKey key;
  const net::Peer me;
  const SystemClock clock;
  ByteLedger ledger;
  std::unique_ptr<net::TcpChannel> channel;
  std::unique_ptr<net::Transport> transport;
  const std::vector<std::byte> piece = std::vector<std::byte>(kPieceBytes);
  std::uint64_t asked = 0;
  std::uint64_t taken = 0;
};

LinkAnswerer::LinkAnswerer(const net::JobKey& key, const net::Endpoint& at)
    : end_(std::make_unique<LinkEnd>(key, kAnswerer)), endpoint_(end_->channel->listen(at.host, at.port)) {}
LinkAnswerer::~LinkAnswerer() = default;

std::string LinkAnswerer::answer(Moment deadline) {
  try {
    end_->channel->await_links({kAsker}, deadline);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::timeout) throw;
    fail(ErrorKind::timeout, "no process with the job's key connected to {} in time", endpoint_);
  }
  end_->open();
  std::string address = end_->transport->describe(kAsker);
  for (;;) {
    const FrameHeader asked = end_->next(kAsker).header;
    if (asked.type == FrameType::barrier) break;
    if (asked.type != FrameType::message || asked.dest > kPieceBytes)
      fail(ErrorKind::protocol, "{}: {} for {} bytes", address, to_string(asked.type), asked.dest);
    FrameHeader answer{.type = FrameType::message};
    answer.step = asked.step;
    answer.version = static_cast<std::uint64_t>(wall_clock_ns());
    end_->transport->send(kAsker, answer, std::span(end_->piece).first(asked.dest));
  }
  return address;
}

LinkAsker::LinkAsker(const net::JobKey& key, const std::string& endpoint, Moment deadline)
    : end_(std::make_unique<LinkEnd>(key, kAsker)) {
  end_->channel->connect({{kAnswerer, endpoint}}, deadline);
  end_->open();
}
LinkAsker::~LinkAsker() = default;

LinkFigures LinkAsker::measure(Nanoseconds each) {
  LinkFigures figures{.where = end_->transport->describe(kAnswerer),
                      .least_round_trip_s = std::numeric_limits<double>::infinity()};
  figures.round_trip_s = end_->round_trip_s(each, 0, 1, figures);
  for (const std::size_t bytes :
       {std::size_t{0}, std::size_t{1024}, std::size_t{8192}, std::size_t{65536}, kPieceBytes})
    figures.one_way_s.emplace_back(bytes, end_->round_trip_s(each / 5, bytes, 3, figures) / 2);
  figures.sending_bytes_per_s = end_->bytes_per_second(each, end_->piece, 0);
  figures.receiving_bytes_per_s = end_->bytes_per_second(each, {}, kPieceBytes);
  end_->transport->send(kAnswerer, FrameHeader{.type = FrameType::barrier}, {});
  return figures;
}

LinkFigures measure_loopback(Nanoseconds each) {
  const net::JobKey key = net::JobKey::generate();
  LinkAnswerer answerer(key, {net::loopback_address(), 0});
  const Moment deadline = SystemClock().now() + kSilence;
  std::future<std::string> answered = std::async(std::launch::async, [&] { return answerer.answer(deadline); });
  LinkFigures figures = LinkAsker(key, answerer.endpoint(), deadline).measure(each);
  answered.get();
  return figures;
}

}  // namespace psring::cli
