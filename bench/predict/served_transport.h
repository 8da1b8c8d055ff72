#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>

#include <psring/bench/predict/served_cards.h>
#include <psring/common/net/outbox.h>

namespace psring::bench {

/// The end of a worker's or server's links in virtual time. Frames wait in the job's own net::Outbox, and leave by the
/// cards; payloads have sizes alone. `begin` of a frame's header is the number of its piece.
class ServedTransport final : public net::Transport {
 public:
  /// `self`: a place's peer. REQUIRES: all arguments but `self` outlive this.
  ServedTransport(const TimedJob& job, const ServedPlaces& places, const ServedPieces& pieces, ServedCards& cards,
                  net::Peer self);

  void add(net::Peer to, net::FrameHeader header);
  /// Gives frames to the cards while the windows have room.
  void flush(double now) {
    now_ = now;
    outbox_.flush(*this);
  }

  void send(net::Peer to, net::FrameHeader header, std::span<const std::byte> payload) override;
  /// Nothing: the cards hand frames over.
  std::optional<net::Message> receive(Moment /*deadline*/) override { return std::nullopt; }
  std::size_t in_flight_bytes(net::Peer peer) const override {
    return cards_.in_flight_bytes(places_.place_of(self_), places_.place_of(peer));
  }
  std::size_t window_bytes(net::Peer peer) const override {
    return cards_.window_bytes(places_.place_of(self_), places_.place_of(peer));
  }
  std::string describe(net::Peer /*peer*/) const override { return "planned"; }
  void wake() override {}

 private:
  const ServedPiece& piece_of(net::Peer to, const net::FrameHeader& header) const;

  const ServedPlaces& places_;
  const ServedPieces& pieces_;
  ServedCards& cards_;
  const net::Peer self_;
  net::Outbox outbox_;
  double now_ = 0;  ///< of the present flush
};

}  // namespace psring::bench
