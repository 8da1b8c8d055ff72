#include <algorithm>
#include <cerrno>
#include <cstring>

#include <poll.h>
#include <sys/eventfd.h>
#include <zmq.h>

#include <psring/common/base/error.h>
#include <psring/common/net/zmq/outbox.h>

namespace psring::net {

struct ZmqOutbox::Parcel {
  std::shared_ptr<Lane> lane;
  std::size_t bytes;
};

ZmqOutbox::ZmqOutbox(std::size_t low_water_bytes)
    : low_water_bytes_(low_water_bytes), ring_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  check(static_cast<bool>(ring_), "cannot make an eventfd: {}", std::strerror(errno));
}

int ZmqOutbox::lend(void* socket, const std::shared_ptr<Lane>& lane, std::span<const std::byte> bytes) {
  zmq_msg_t part;
  auto parcel = std::make_unique<Parcel>(Parcel{lane, bytes.size()});
  // ZeroMQ's interface is not const, but ZeroMQ only reads the data.
  void* data = const_cast<std::byte*>(bytes.data());
  const int made = zmq_msg_init_data(&part, data, bytes.size(), &ZmqOutbox::delivered, parcel.get());
  check(made == 0, "ZeroMQ: no memory for a message");
  static_cast<void>(parcel.release());  // `delivered` will free it
  lane->bytes += bytes.size();
  lane->outbox->bytes_ += bytes.size();
  if (zmq_msg_send(&part, socket, ZMQ_DONTWAIT) >= 0) return 0;
  const int error = errno;
  zmq_msg_close(&part);
  return error;
}

/// ZeroMQ calls this, usually in its I/O thread, once the bytes have left.
void ZmqOutbox::delivered(void*, void* hint) {
  const std::unique_ptr<Parcel> parcel(static_cast<Parcel*>(hint));
  ZmqOutbox& outbox = *parcel->lane->outbox;
  const std::size_t before = parcel->lane->bytes.fetch_sub(parcel->bytes);
  const bool all = outbox.bytes_.fetch_sub(parcel->bytes) == parcel->bytes;
  const bool room = before > outbox.low_water_bytes_ && before - parcel->bytes <= outbox.low_water_bytes_;
  if (room || (all && outbox.draining_.load())) outbox.ring();
}

void ZmqOutbox::ring() { ::eventfd_write(ring_.get(), 1); }

bool ZmqOutbox::take_ring() {
  eventfd_t rings = 0;
  return ::eventfd_read(ring_.get(), &rings) == 0;
}

bool ZmqOutbox::drain(Moment deadline) {
  const SystemClock clock;
  draining_.store(true);
  while (bytes_.load() > 0) {
    const Nanoseconds left = deadline - clock.now();
    if (left <= Nanoseconds(0)) return false;
    const auto left_ms = std::chrono::ceil<std::chrono::milliseconds>(left).count();
    pollfd item{ring_.get(), POLLIN, 0};
    if (::poll(&item, 1, static_cast<int>(std::min<std::int64_t>(left_ms, 60'000))) > 0) take_ring();
  }
  return true;
}

}  // namespace psring::net
