// The exchange of rows: a server's shard and a client answer any frames, keep bounded memory, and continue.
#include <psring/common/net/row_flags.h>
#include <psring/optim/rows/row_hash.h>
#include <psring/tests/fuzz/frames.h>
#include <psring/tests/support/shard_cluster.h>
#include <psring/worker/tables/table_protocol.h>

using namespace psring;
using namespace psring::net;

namespace {

constexpr std::size_t kWorkers = 2;
constexpr std::size_t kServers = 2;
constexpr std::size_t kMostKeys = 16;
constexpr std::size_t kWidth = 2;

Layout fuzzed_layout() {
  Layout layout = test::small_layout(kServers);
  layout.tables = {
      {.name = "rows", .width = kWidth, .most_keys = kMostKeys, .most_bags = kMostKeys, .pieces = 2, .lookahead = 1}};
  return layout;
}

/// Ascending keys, often of the range and in order.
std::vector<std::uint64_t> read_keys(fuzz::Input& in, Range buckets, std::size_t count) {
  std::vector<std::uint64_t> keys;
  const bool wrong = in.below(16) == 0;
  for (std::size_t i = 0; i < count; ++i)
    keys.push_back(wrong ? in.number<std::uint64_t>()
                         : (std::uint64_t{buckets.begin} + i * buckets.size() / (count + 1)) << 44 | in.byte());
  return keys;
}

test::Frame read_frame(fuzz::Input& in, const Layout& layout, std::size_t server) {
  test::Frame frame;
  FrameHeader& header = frame.header;
  if (in.below(16) == 0) {
    header = fuzz::read_header(in);
    if (header.type == FrameType::failed) header.sender_role = Role::worker;
    frame.payload.resize(in.byte());
    return frame;
  }
  const Range owned = table_buckets(kServers, server);
  Range buckets = table_piece(owned, 2, in.below(2));
  if (in.below(4) == 0) buckets = {buckets.begin + in.below(3) * kCut, buckets.end - in.below(3) * kCut};
  header.sender_rank = static_cast<std::uint32_t>(in.below(kWorkers));
  header.unit = static_cast<std::uint32_t>(layout.units.size() + (in.below(16) == 0 ? in.byte() : 0));
  header.set_range(buckets);
  header.step = header.version = in.below(4);
  if (in.below(8) == 0) header.version = in.odd_number();
  if (in.below(4) == 0) header.flags = in.byte();
  const std::size_t count = in.below(kMostKeys + 2);
  if (in.below(2) == 0) {
    header.type = FrameType::rows_pull;
    header.micro = static_cast<std::uint32_t>(count * kWidth);
    if (in.below(4) == 0) header.flags = net::kAhead;
    const bool cached = in.below(4) == 0;
    if (cached) header.flags = net::kCached;
    if (net::is_ahead(header)) header.micro += static_cast<std::uint32_t>(net::mark_bytes(count) / sizeof(float));
    const std::vector<std::uint64_t> keys = read_keys(in, buckets, count);
    const auto bytes = std::as_bytes(std::span(keys));
    frame.payload.assign(bytes.begin(), bytes.end());
    if (cached) {
      std::vector<std::uint8_t> here(count);
      for (std::uint8_t& each : here) each = static_cast<std::uint8_t>(in.below(2));
      net::Marks marks = net::marks_of(here);
      header.micro -= static_cast<std::uint32_t>(net::count_of(marks) * kWidth);
      if (!marks.empty() && in.below(16) == 0) marks.back() = in.number<std::uint64_t>();
      const auto bits = std::as_bytes(std::span(marks));
      frame.payload.insert(frame.payload.end(), bits.begin(), bits.end());
    }
  } else {
    header.type = FrameType::rows_push;
    frame.payload.resize(count * kWidth * sizeof(float));
  }
  if (in.below(32) == 0) frame.payload.resize(in.byte());
  if (in.below(32) == 0) header.dtype = static_cast<DType>(in.below(kDTypes));
  return frame;
}

/// Answers of any kind to a client that has pulled.
void fuzz_client(fuzz::Input& in, const Layout& layout) {
  worker::TableProtocol protocol(layout, {});
  const bool ahead = in.below(2) == 0;
  std::vector<std::uint64_t> keys = read_keys(in, {0, kBuckets}, in.below(kMostKeys));
  std::sort(keys.begin(), keys.end());
  keys.erase(std::unique(keys.begin(), keys.end()), keys.end());
  std::vector<float> rows(keys.size() * kWidth);
  std::vector<Outgoing> out;
  std::vector<std::byte> landing(keys.size() * (8 + kWidth * sizeof(float)));
  worker::RowKeys asked{.keys = keys, .landing = landing};
  std::vector<std::byte> memory(keys.size() * worker::kKeyWithBits);
  std::vector<std::uint8_t> here(keys.size());
  for (std::uint8_t& each : here) each = static_cast<std::uint8_t>(in.below(2));
  if (!ahead && in.below(2) == 0) {
    asked.memory = memory;
    asked.here = here;
  }
  protocol.pull(0, asked, 0, rows, ahead ? worker::RowUse::ahead : worker::RowUse::train, out);
  std::vector<std::byte> payload(kMostKeys * kWidth * sizeof(float) + 1);
  for (int i = 0; i < 32 && !in.empty(); ++i) {
    Message message{out[in.below(out.size())].header, {}, {}, nullptr};
    message.header.type = in.below(4) == 0 ? FrameType::rows_ack : FrameType::rows;
    message.header.sender_role = Role::server;
    message.header.sender_rank = static_cast<std::uint32_t>(in.below(kServers));
    if (in.below(2) == 0) message.header.flags = 0;
    for (int bit = 0; bit < 8; ++bit) payload[in.below(payload.size())] = static_cast<std::byte>(in.byte());
    if (in.below(8) == 0) message.header.set_range({in.byte(), in.byte() + std::size_t{255}});
    if (in.below(8) == 0) message.header.unit = in.byte();
    message.payload = std::span<const std::byte>(payload).first(
        in.below(2) == 0 ? std::min<std::size_t>(message.header.micro * sizeof(float), payload.size())
                         : in.below(payload.size()));
    try {
      protocol.on_message(message);
    } catch (const Error& error) {
      fuzz::require(error.kind() == ErrorKind::protocol, "a protocol error");
    }
  }
}

}  // namespace

void psring::fuzz::run(Input in) {
  Layout layout = fuzzed_layout();
  if (in.below(4) == 0) return fuzz_client(in, layout);
  const bool stale = in.below(3) == 0;  // workers may have caches
  if (stale) layout.tables[0].lookahead = 0;
  test::ShardCluster cluster({.servers = kServers,
                              .workers = kWorkers,
                              .memory_bytes = 1 << 22,
                              .row_consistency = stale ? "ssp:2" : "bsp",
                              .table_optimizer = "adam"});
  cluster.open(layout);
  const std::size_t empty = cluster.communication_bytes();
  for (int i = 0; i < 200 && !in.empty(); ++i) {
    const std::size_t server = in.below(kServers);
    const auto replies = cluster.send_only(server, read_frame(in, layout, server));
    require(replies.size() <= 2 * kWorkers * (2 + kMostKeys) + kServers, "no more answers than askers");
    // Answers of three lanes, a list, and the keys of a third step.
    constexpr std::size_t kEach = 4 * kWidth * sizeof(float) + 2 * sizeof(std::uint64_t);
    require(cluster.communication_bytes() <= empty + kServers * kWorkers * kMostKeys * kEach,
            "memory for what waits that is bounded");
  }
}
