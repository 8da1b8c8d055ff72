#include <cstddef>
#include <cstdint>
#include <cstring>

#include <psring/common/net/sim/lossy_wire.h>

namespace psring::net {

void LossyWire::carry(const Message& message, const Deliver& deliver) {
  if (draws_.chance(faults_.duplicate)) carry_copy(message, deliver);
  if (!draws_.chance(faults_.drop)) carry_copy(message, deliver);
}

void LossyWire::carry_copy(const Message& message, const Deliver& deliver) {
  Nanoseconds extra_delay{0};
  if (faults_.extra_delay > Nanoseconds(0))
    extra_delay = Nanoseconds(static_cast<std::int64_t>(static_cast<double>(faults_.extra_delay.count()) *
                                                        static_cast<double>(draws_.uniform())));
  const bool corrupt = draws_.chance(faults_.corrupt);
  deliver(extra_delay, corrupt ? corrupted(message) : std::make_shared<Message>(message));
}

std::shared_ptr<Message> LossyWire::corrupted(const Message& message) {
  auto other = std::make_shared<Message>(message);
  const std::uint32_t bit = draws_.bits();
  if (message.payload.empty()) {
    other->header.step ^= std::uint64_t{1} << (bit % 64);
    return other;
  }
  const std::shared_ptr<std::byte> block = blocks_->take(message.payload.size());
  std::memcpy(block.get(), message.payload.data(), message.payload.size());
  block.get()[bit / 8 % message.payload.size()] ^= std::byte{1} << (bit % 8);
  other->payload = {block.get(), message.payload.size()};
  other->holder = block;
  return other;
}

}  // namespace psring::net
