// A server's shard: for any frames of authenticated peers it answers, keeps bounded memory, and continues.
#include <psring/common/base/parallel.h>
#include <psring/common/base/pieces.h>
#include <psring/tests/fuzz/frames.h>
#include <psring/tests/support/shard_cluster.h>

using namespace psring;
using namespace psring::net;

namespace {

constexpr std::size_t kWorkers = 2;

test::ShardRules rules_of(std::size_t which) {
  const test::ShardRules all[] = {
      {.servers = 1, .workers = kWorkers, .memory_bytes = 1 << 20},
      {.servers = 2, .workers = kWorkers, .optimizer = "", .memory_bytes = 1 << 20},
      {.servers = 3, .workers = kWorkers, .optimizer = "adam", .clip_norm = 1, .memory_bytes = 1 << 20},
      {.servers = 3,
       .workers = kWorkers,
       .optimizer = "lamb",
       .clip_norm = 1,
       .memory_bytes = 1 << 20,
       .save_every = 1}};
  return all[which % std::size(all)];
}

std::vector<std::byte> payload_of(fuzz::Input& in, std::size_t bytes) {
  std::vector<std::byte> payload(bytes);
  const auto given = in.take(std::min<std::size_t>(bytes, in.byte()));
  std::ranges::copy(given, payload.begin());
  return payload;
}

/// A nearly valid frame; the input says which fields are wrong.
test::Frame read_frame(fuzz::Input& in, const Layout& layout, const std::vector<Piece>& pieces) {
  test::Frame frame;
  const Piece& piece = pieces[in.below(pieces.size())];
  const auto worker = static_cast<std::uint32_t>(in.below(kWorkers));
  const std::size_t what = in.below(8);
  if (what == 0) {
    frame.header = fuzz::read_header(in);
    frame.payload = payload_of(in, in.number<std::uint16_t>() % 4096);
  } else if (what == 1) {
    frame = test::layout_frame(worker, layout, 3, in.below(8) == 0);
    if (in.below(4) == 0)
      for (int left = in.byte() % 8; left > 0; --left)
        frame.payload[in.number<std::uint16_t>() % frame.payload.size()] = std::byte{in.byte()};
  } else if (what == 2) {
    frame = test::pull_frame(worker, piece, in.odd_number());
  } else if (what == 3) {
    frame.header.type = FrameType::verdict;
    frame.header.sender_role = Role::server;
    frame.header.sender_rank = static_cast<std::uint32_t>(in.below(4));
    frame.header.step = in.below(4);
    frame.payload = payload_of(in, optim::ExactSum::kBytes * in.below(10));
  } else if (what == 4) {
    frame.header.sender_rank = worker;
    frame.header.step = in.odd_number();
    frame.header.type = in.below(2) == 0 ? FrameType::save : FrameType::saved;
    frame.header.version = in.below(4);
  } else {
    const std::vector<float> values(layout.units[piece.unit].elements, static_cast<float>(in.byte()));
    const FrameType types[] = {FrameType::push, FrameType::push_pull, FrameType::initial};
    frame = test::push_frame(worker, piece, in.below(4), values, types[what - 5]);
    frame.header.flags = in.byte();
    if (in.below(8) == 0) frame.header.micro = static_cast<std::uint32_t>(in.odd_number());
    if (in.below(8) == 0) frame.payload.resize(in.number<std::uint16_t>());
  }
  if (in.below(16) == 0) frame.header.dtype = static_cast<DType>(in.below(kDTypes));
  if (frame.header.type == FrameType::failed)
    frame.header.sender_role = Role::worker;  // from a server it would end the shard
  return frame;
}

}  // namespace

void psring::fuzz::run(Input in) {
  const test::ShardRules rules = rules_of(in.byte());
  test::ShardCluster cluster(rules);
  Layout layout = test::small_layout(rules.servers);
  layout.units[1].trained = in.below(2) == 0;
  const std::vector<Piece> pieces = make_pieces(layout);
  std::size_t most = 0;
  for (int i = 0; i < 200 && !in.empty(); ++i) {
    const std::size_t server = in.below(rules.servers);
    const test::Frame frame = read_frame(in, layout, pieces);
    const auto replies = cluster.send_only(server, frame);
    require(replies.size() <= kWorkers * pieces.size() + rules.servers, "no more answers than askers");
    most = std::max(most, replies.size());
    server::Shard& shard = cluster.shard(server);
    if (shard.save_due()) {
      std::vector<Outgoing> out;
      require(!shard.state().empty(), "a state to save");
      shard.saved(out);
    }
    require(cluster.communication_bytes() <= kWorkers * rules.servers * layout.elements() * sizeof(float) * 4,
            "memory for what waits that is bounded");
  }
}
