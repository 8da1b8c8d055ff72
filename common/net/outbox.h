#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <tuple>
#include <vector>

#include <psring/common/net/transport.h>

namespace psring::net {

/// A frame to be sent. The payload stays unchanged until the receiver has proven to have it; one of at most
/// 4 KiB, which transports copy, may live by `holder` alone.
struct Outgoing {
  Peer to;
  FrameHeader header;
  std::span<const std::byte> payload;
  std::shared_ptr<const void> holder = nullptr;  ///< shared with the queue that the frame waits in
};

/// Frames that wait for their turn. What the next forward pass needs first leaves first: frames without
/// payload, then the units in forward order, then as they came. Only `window_bytes` at a time, or
/// what the transport says if that is less, are given to it for each peer, so that what is urgent has little to wait
/// for. To one peer they may leave as they came.
class Outbox {
 public:
  explicit Outbox(std::size_t window_bytes = kWindowBytes, std::optional<Peer> in_order = {})
      : window_bytes_(window_bytes), in_order_(in_order) {}

  void add(const Outgoing& frame);
  /// Gives the transport what its windows have room for.
  void flush(Transport& transport);
  bool empty() const { return waiting_.empty(); }

 private:
  using Key = std::tuple<bool, std::uint32_t, std::uint64_t, std::uint64_t>;  // has payload, unit, begin, arrival

  std::size_t window_bytes_;
  std::optional<Peer> in_order_;  ///< whose frames do not overtake each other
  std::uint64_t arrivals_ = 0;
  std::map<Peer, std::map<Key, Outgoing>> waiting_;
};

}  // namespace psring::net
