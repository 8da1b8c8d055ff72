// A worker's side of push and pull: whatever servers answer, it takes what it asked for, once.
#include <vector>

#include <psring/tests/fuzz/frames.h>
#include <psring/tests/support/shard_cluster.h>
#include <psring/worker/servers/client_protocol.h>

using namespace psring;
using namespace psring::net;

void psring::fuzz::run(Input in) {
  const Layout layout = test::small_layout(1 + in.below(3));
  worker::ClientProtocol client(layout, nullptr, in.byte());
  std::vector<std::vector<float>> gradients;
  std::vector<std::vector<float>> values;
  for (const UnitLayout& unit : layout.units) {
    gradients.emplace_back(unit.elements);
    values.emplace_back(unit.elements, -1.0F);
  }
  worker::ClientProtocol::Frames asked;
  client.open(3, in.below(2) == 0, asked);
  std::vector<std::byte> payload;
  for (int i = 0; i < 100 && !in.empty(); ++i) {
    const std::size_t unit = in.below(layout.units.size());
    switch (in.below(6)) {
      case 0:
        client.push(unit, in.byte(), 0, gradients[unit], asked);
        continue;
      case 1:
        if (client.settled(unit)) client.pull(unit, in.byte(), values[unit], false, asked);
        continue;
      case 2:
        if (client.settled(unit)) client.push_pull(unit, in.byte(), gradients[unit], values[unit], asked);
        continue;
      case 3:
        client.save(in.byte(), 0, asked);
        continue;
      default:
        break;
    }
    Message message;
    if (in.below(4) == 0) {
      message.header = read_header(in);
      const auto bytes = in.take(in.byte());
      payload.assign(bytes.begin(), bytes.end());
    } else {  // an answer to one that was asked, right or not
      const Outgoing& frame = asked[in.number<std::uint16_t>() % asked.size()];
      message.header = frame.header;
      message.header.type = static_cast<FrameType>(in.below(4) == 0 ? 1 + in.below(kFrameTypes - 1) : 13);
      message.header.version = in.odd_number();
      message.header.flags = in.byte();
      message.header.sender_role = Role::server;
      message.header.sender_rank = in.below(8) == 0 ? in.byte() : frame.to.rank;
      payload.assign(in.below(8) == 0 ? in.byte() : message.header.range().size() * sizeof(float), std::byte{1});
    }
    message.header.payload_bytes = payload.size();
    message.payload = payload;
    refuses(ErrorKind::protocol, [&] { client.on_message(message); });
    for (std::size_t u = 0; u < layout.units.size(); ++u) client.has(u, 1);
  }
}
