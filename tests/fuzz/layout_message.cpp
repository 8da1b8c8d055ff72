// The layout that a worker describes to a server: one that is taken is written as it was read, and can be cut.
#include <psring/common/base/pieces.h>
#include <psring/common/net/layout_message.h>
#include <psring/tests/fuzz/input.h>

using namespace psring;

void psring::fuzz::run(Input in) {
  const auto bytes = in.rest();
  refuses(ErrorKind::protocol, [&] {
    const net::LayoutMessage message = net::decode_layout(bytes);
    require(std::ranges::equal(net::encode(message), bytes), "a layout that is written as it was read");
    require(message.layout.elements() >= message.layout.trained_elements(), "what is trained is a part");
    if (message.layout.elements() < 1U << 24 && message.layout.owners * message.layout.units.size() < 1U << 16) {
      std::size_t covered = 0;
      for (const Piece& piece : make_pieces(message.layout)) covered += piece.range.size();
      require(covered == message.layout.elements(), "pieces that are all of it");
    }
  });
}
