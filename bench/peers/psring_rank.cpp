#include <chrono>
#include <memory>
#include <variant>

#include <fmt/format.h>

#include <psring/bench/peers/psring_rank.h>
#include <psring/common/base/text/error.h>
#include <psring/common/base/text/spec.h>
#include <psring/common/device/buffer.h>
#include <psring/common/net/host.h>
#include <psring/common/proc/control/control_messages.h>
#include <psring/ring/collectives.h>
#include <psring/ring/ring_links.h>
#include <psring/ring/shm/group.h>

namespace psring::bench {
namespace {

constexpr std::chrono::seconds kPatience{60};

class PsringRank final : public RankLibrary {
 public:
  PsringRank(const PsringRanks& ranks, const PsringRankOptions& options) {
    const std::size_t arena_bytes = 2 * round_up(options.max_bytes, Arena::kAlignment) + ring::kShmArenaBytes;
    for (const std::string& way : options.ways) {
      ways_.push_back(parse_psring_way(way));
      connect(ranks, ways_.back(), std::make_shared<Arena>(arena_bytes));  // sparse
    }
    for (std::byte*& vector : vectors_) {
      if (options.registered)
        vector = buffers_.emplace_back(options.max_bytes, Category::communication, memory_, groups_.front()->arena())
                     .bytes()
                     .data();
      else
        vector = plain_.emplace_back(options.max_bytes).data();
    }
  }

  std::vector<std::string> ways(const CollectiveCall& call) override {
    std::vector<std::string> names;
    for (const PsringWay& way : ways_) names.push_back(to_string(way));
    if (call.kind != CollectiveKind::all_reduce) names.resize(1);  // the other collectives have only one algorithm
    return names;
  }

  PreparedCall prepare(const CollectiveCall& call, std::size_t way) override {
    ring::ProcessGroup& group = *groups_.at(way);
    const ring::ReduceOp op(call.redop);
    const ElementType type{call.dtype};
    const Vector data(vectors_[0], call.count, type);
    const Vector other(vectors_[1], call.count, type);
    const Vector part = data.part({0, call.part()});
    const Vector other_part = other.part({0, call.part()});
    const ring::Parts parts = ring::even_parts(call.count, call.ranks);
    const Vector own_part = data.part(parts[call.rank].front());
    const auto detail = [&](ring::Collective collective) { return group.describe(collective, call.count, type); };
    switch (call.kind) {
      case CollectiveKind::all_reduce:
        return {data.data, data.data, [&group, data, op] { group.all_reduce(data, op).wait(); },
                detail(ring::Collective::all_reduce)};
      case CollectiveKind::reduce_scatter:
        return {data.data, own_part.data, [&group, data, op, parts] { group.reduce_scatter(data, parts, op).wait(); },
                detail(ring::Collective::reduce_scatter)};
      case CollectiveKind::all_gather:
        return {own_part.data, data.data, [&group, data, parts] { group.all_gather(data, parts).wait(); },
                detail(ring::Collective::all_gather)};
      case CollectiveKind::broadcast:
        return {data.data, data.data, [&group, data, root = call.root] { group.broadcast(data, root).wait(); },
                detail(ring::Collective::broadcast)};
      case CollectiveKind::reduce:
        return {data.data, data.data, [&group, data, op, root = call.root] { ring::reduce_to(group, data, op, root); },
                detail(ring::Collective::reduce_scatter)};
      case CollectiveKind::gather:
        return {part.data, other.data,
                [&group, part, other, root = call.root] { ring::gather(group, part, other, root); },
                detail(ring::Collective::send)};
      case CollectiveKind::scatter:
        return {data.data, other.data,
                [&group, data, other_part, root = call.root] { ring::scatter(group, data, other_part, root); },
                detail(ring::Collective::send)};
      case CollectiveKind::all_to_all:
        return {data.data, other.data, [&group, data, other] { ring::all_to_all(group, data, other); },
                detail(ring::Collective::send)};
      case CollectiveKind::sendrecv:
        return {data.data, other.data,
                [&group, data, other, next = call.next(), previous = call.previous()] {
                  ring::Work receiving = group.recv(other, previous);
                  group.send(data, next).wait();
                  receiving.wait();
                },
                detail(ring::Collective::send)};
    }
    fail(ErrorKind::bug, "unknown collective");
  }

 private:
  using Vector = ring::Vector;
  using ElementType = ring::ElementType;

  void connect(const PsringRanks& ranks, const PsringWay& way, std::shared_ptr<Arena> arena) {
    ring::RingLinks& links = *links_.emplace_back(std::make_unique<ring::RingLinks>(ranks.key, ranks.links, bytes_));
    std::vector<net::Member> members;
    for (const auto& bytes : ranks.exchange(net::encode_control(net::control::Ready{links.listen()}))) {
      const auto ready = std::get<net::control::Ready>(net::decode_control(bytes));
      const net::Peer peer{net::Role::worker, static_cast<std::uint32_t>(members.size())};
      members.push_back({.peer = peer, .host_id = ranks.links.host_id, .addresses = ready.addresses});
    }
    ring::LinkOptions link_options;
    link_options.group = ranks.group;
    link_options.tuning = ring::Tuning::built_in();
    link_options.segment_bytes = way.segment_bytes;
    if (way.algorithm != "auto" && way.algorithm != "direct")
      link_options.algorithm = ring::parse_algorithm("--algorithm", way.algorithm);
    const Moment deadline = SystemClock().now() + kPatience;
    groups_.push_back(links.connect(members, std::move(arena), std::move(link_options), deadline));
  }

  std::vector<PsringWay> ways_;
  ByteLedger bytes_;
  std::vector<std::unique_ptr<ring::RingLinks>> links_;  ///< must outlive their groups
  std::vector<std::unique_ptr<ring::ProcessGroup>> groups_;
  MemoryLedger memory_;
  std::vector<Buffer> buffers_;
  std::vector<PlainVector> plain_;
  std::byte* vectors_[2] = {};  ///< in one of the two
};

}  // namespace

std::string to_string(const PsringWay& way) { return fmt::format("{}:{}", way.algorithm, way.segment_bytes); }

PsringWay parse_psring_way(const std::string& text) {
  const std::size_t colon = text.find(':');
  if (colon == std::string::npos || colon + 1 == text.size())
    fail(ErrorKind::usage, "expected ALGORITHM:BYTES, got '{}'", text);
  const std::string bytes = text.substr(colon + 1);
  return {text.substr(0, colon), bytes == "0" ? 0 : parse_bytes("--ways", bytes)};
}

std::unique_ptr<RankLibrary> connect_psring(const PsringRanks& ranks, const PsringRankOptions& options) {
  return std::make_unique<PsringRank>(ranks, options);
}

int run_psring_rank(const PsringRankOptions& options) {
  RankLink link(options.control, options.rank);
  return run_rank(link, [&] {
    const PsringRanks ranks{
        .key = net::JobKey::load(options.key_file),
        .links = {.self = {{net::Role::worker, static_cast<std::uint32_t>(link.rank())}, 0},
                  .way = net::parse_way(options.transport),
                  .encrypt = options.encrypt,
                  .host_id = net::host_id(),
                  .silence = kSilence,
                  .streams = options.streams,
                  .link = options.link.empty() ? std::nullopt : std::optional(net::parse_link(options.link))},
        .exchange = [&](std::span<const std::byte> bytes) { return link.exchange(bytes); }};
    PsringRank library(ranks, options);
    link.ready();
    serve_rank(link, library);
  });
}

}  // namespace psring::bench
