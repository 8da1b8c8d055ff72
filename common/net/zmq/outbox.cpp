#include <algorithm>
#include <array>
#include <cerrno>

#include <poll.h>
#include <sys/eventfd.h>
#include <zmq.h>

#include <psring/common/net/zmq/outbox.h>

namespace psring::net {

/// A frame on its way. ZeroMQ has both of its parts.
struct ZmqOutbox::Parcel {
  std::shared_ptr<Lane> lane;
  std::size_t bytes;
  std::array<std::byte, kHeaderBytes> header;
  std::atomic<int> parts{2};
};

ZmqOutbox::ZmqOutbox(std::size_t low_water_bytes) : low_water_bytes_(low_water_bytes), ring_(make_eventfd()) {}

int ZmqOutbox::lend(void* socket, const std::shared_ptr<Lane>& lane, const FrameHeader& header,
                    std::span<const std::byte> payload) {
  auto* const parcel = new Parcel{lane, payload.size(), encode(header)};  // the last `delivered` frees it
  lane->bytes += payload.size();
  lane->outbox->bytes_ += payload.size();
  const int error = lend_part(socket, payload, *parcel, ZMQ_SNDMORE);
  if (error == 0) return lend_part(socket, parcel->header, *parcel, 0);
  delivered(nullptr, parcel);  // for the header, of which there is no part
  return error;
}

int ZmqOutbox::lend_part(void* socket, std::span<const std::byte> bytes, Parcel& parcel, int flags) {
  zmq_msg_t part;
  // ZeroMQ's interface is not const, but ZeroMQ only reads the data.
  void* data = const_cast<std::byte*>(bytes.data());
  if (zmq_msg_init_data(&part, data, bytes.size(), &ZmqOutbox::delivered, &parcel) != 0) {
    delivered(nullptr, &parcel);
    return ENOMEM;
  }
  if (zmq_msg_send(&part, socket, ZMQ_DONTWAIT | flags) >= 0) return 0;
  const int error = errno;
  zmq_msg_close(&part);
  return error;
}

/// ZeroMQ calls this for each part, usually in its I/O thread, when it does not need the part any more.
void ZmqOutbox::delivered(void*, void* hint) {
  auto* const last = static_cast<Parcel*>(hint);
  if (last->parts.fetch_sub(1) > 1) return;
  const std::unique_ptr<Parcel> parcel(last);
  ZmqOutbox& outbox = *parcel->lane->outbox;
  const std::size_t before = parcel->lane->bytes.fetch_sub(parcel->bytes);
  const bool all = outbox.bytes_.fetch_sub(parcel->bytes) == parcel->bytes;
  const bool room = before > outbox.low_water_bytes_ && before - parcel->bytes <= outbox.low_water_bytes_;
  if (room || outbox.rings_always_.load() || (all && outbox.draining_.load())) outbox.ring();
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
