// Control messages, between members and the coordinator: what is taken is written and read as the same again.
#include <psring/common/net/control_messages.h>
#include <psring/tests/fuzz/input.h>

using namespace psring;

void psring::fuzz::run(Input in) {
  const auto bytes = in.rest();
  refuses(ErrorKind::protocol, [&] {
    const std::vector<std::byte> once = net::encode_control(net::decode_control(bytes));
    require(net::encode_control(net::decode_control(once)) == once, "a message that is read as it was written");
  });
}
