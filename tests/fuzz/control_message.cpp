// Control messages, between members and the coordinator: what is taken is written and read as the same again.
#include <vector>

#include <psring/common/proc/control/control_messages.h>
#include <psring/tests/fuzz/input.h>

using namespace psring;

void psring::fuzz::run(Input in) {
  const auto rest = in.rest();
  std::vector<std::byte> bytes(rest.begin(), rest.end());
  // The version of today: what lies in the corpus stays of use when the number rises.
  if (!bytes.empty()) bytes[0] = net::encode_control(net::control::Done{})[0];
  refuses(ErrorKind::protocol, [&] {
    const std::vector<std::byte> once = net::encode_control(net::decode_control(bytes));
    require(net::encode_control(net::decode_control(once)) == once, "a message that is read as it was written");
  });
}
