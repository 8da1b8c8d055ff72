// A server's follower: any frame of its server ends in an error, or the shard continues.
#include <psring/common/base/pieces.h>
#include <psring/server/replication.h>
#include <psring/tests/fuzz/frames.h>
#include <psring/tests/support/shard_cluster.h>

using namespace psring;
using namespace psring::net;

namespace {

Message read_message(fuzz::Input& in, const Layout& layout, const std::vector<Piece>& pieces,
                     std::vector<std::byte>& payload) {
  Message message;
  FrameHeader& header = message.header;
  const Piece& piece = pieces[in.below(pieces.size())];
  switch (in.below(5)) {
    case 0:
      header = fuzz::read_header(in);
      header.relayed = static_cast<FrameType>(in.below(kFrameTypes));
      break;
    case 1:
      header.type = FrameType::state;
      header.relayed = FrameType::layout;
      payload = test::layout_frame(0, layout).payload;
      break;
    case 2:  // a piece's array
      header.type = FrameType::state;
      header.unit = static_cast<std::uint32_t>(piece.unit);
      header.set_range(piece.range);
      header.version = in.odd_number();
      header.micro = in.byte();
      payload.resize(piece.range.size() * sizeof(float), std::byte{in.byte()});
      break;
    case 3:  // the end
      header.type = FrameType::state;
      header.micro = 3;
      payload.resize(optim::LossScaler::kBytes + sizeof(std::uint64_t) + in.below(3) * optim::ExactSum::kBytes);
      for (std::byte& byte : std::span(payload).first(optim::LossScaler::kBytes + sizeof(std::uint64_t)))
        byte = std::byte{in.byte()};
      break;
    default:
      header.type = FrameType::replicate;
      header.relayed = in.below(2) == 0 ? FrameType::push : FrameType::push_pull;
      header.unit = static_cast<std::uint32_t>(piece.unit);
      header.set_range(piece.range);
      header.step = in.below(4);
      header.group = static_cast<std::uint32_t>(in.below(3));
      payload.resize(piece.range.size() * sizeof(float), std::byte{in.byte()});
  }
  if (in.below(8) == 0) payload.resize(in.number<std::uint16_t>());
  header.sender_role = Role::server;
  header.sender_rank = static_cast<std::uint32_t>(in.below(8) == 0);
  message.payload = payload;
  return message;
}

}  // namespace

void psring::fuzz::run(Input in) {
  const test::ShardCluster cluster({.servers = 1,
                                    .workers = 2,
                                    .optimizer = "adam",
                                    .clip_norm = in.below(2) == 0 ? 0.0 : 1.0,
                                    .memory_bytes = 1 << 20,
                                    .loss_scale = in.below(2) == 0 ? "off" : "dynamic"});
  const auto shard = cluster.make_shard(0);
  server::Follower follower(*shard, {Role::server, 0});
  const Layout layout = test::small_layout(1);
  const std::vector<Piece> pieces = make_pieces(layout);
  for (int i = 0; i < 200 && !in.empty(); ++i) {
    std::vector<std::byte> payload;
    std::vector<Outgoing> out;
    const Message message = read_message(in, layout, pieces, payload);
    try {
      follower.on_message(message, out);
      require(out.size() == 1, "each frame is acknowledged");
    } catch (const Error& error) {
      require(error.kind() == ErrorKind::protocol || error.kind() == ErrorKind::data, "an error of the frame's");
    }
  }
}
