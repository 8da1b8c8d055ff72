#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <psring/bench/predict/served_cards.h>
#include <psring/bench/predict/worker_actions.h>
#include <psring/common/net/outbox.h>
#include <psring/worker/servers/ps_client.h>

namespace psring::bench {

/// The end of a worker's or server's links in virtual time. Frames wait in the job's own net::Outbox, and leave by the
/// cards; payloads have sizes alone. `begin` of a frame's header is the number of its piece.
class ServedTransport final : public net::Transport {
 public:
  /// Sets the outbox up as worker::PsClient does. `self`: a place's peer. REQUIRES: all arguments but `self` outlive
  /// this.
  ServedTransport(const TimedJob& job, const ServedPlaces& places, const ServedPieces& pieces, ServedCards& cards,
                  net::Peer self)
      : places_(places), pieces_(pieces), cards_(cards), self_(self) {
    if (self.role == net::Role::server) return;
    const std::vector<double> windows = worker::window_weights(job.work.layout.weights);
    for (std::uint32_t rank = 0; rank < places.servers(); ++rank) {
      const net::Peer server{net::Role::server, rank};
      if (places.process_of(places.place_of(server)) == places.place_of(self)) outbox_.hold(server);
      if (!windows.empty()) outbox_.set_weight(server, windows[places.rank_of(rank)]);
    }
  }

  void add(net::Peer to, net::FrameHeader header) {
    const ServedPiece& piece = piece_of(to, header);
    header.unit = static_cast<std::uint32_t>(piece.unit);
    header.sender_role = self_.role;
    header.sender_rank = self_.rank;
    // NOLINTNEXTLINE(performance-no-int-to-ptr): an address that nobody reads
    const auto* const nowhere = reinterpret_cast<const std::byte*>(std::uintptr_t{1} << 40);
    outbox_.add({to, header, {nowhere, static_cast<std::size_t>(piece.payload_bytes(header.type))}});
  }
  /// Gives frames to the cards while the windows have room.
  void flush(double now) {
    now_ = now;
    outbox_.flush(*this);
  }

  void send(net::Peer to, net::FrameHeader header, std::span<const std::byte> /*payload*/) override {
    const ServedPiece& piece = piece_of(to, header);
    const bool is_short = header.type == net::FrameType::push_ack;
    cards_.send({header, to, piece.payload_bytes(header.type), is_short ? 1 : piece.frames}, now_);
  }
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
  const ServedPiece& piece_of(net::Peer to, const net::FrameHeader& header) const {
    const net::Peer server = to.role == net::Role::server ? to : self_;
    return pieces_.of(places_.is_standalone(server.rank))[header.begin];
  }

  const ServedPlaces& places_;
  const ServedPieces& pieces_;
  ServedCards& cards_;
  const net::Peer self_;
  net::Outbox outbox_;
  double now_ = 0;  ///< of the present flush
};

/// A worker, by its place in the list of a step's actions.
struct ServedWorker {
  /// `units`: with tables.
  explicit ServedWorker(std::size_t units) : values_missing(units), values_asked(units), pushes_missing(units) {}

  bool begun = false;  ///< has asked for the initial values
  std::uint32_t step = 0;
  std::size_t next = 0;                       ///< action
  bool waits = false;                         ///< for the answers that `next` names
  std::vector<std::uint32_t> values_missing;  ///< by unit
  std::vector<std::uint32_t> values_asked;    ///< by unit: answers to a pull
  std::vector<std::uint32_t> pushes_missing;  ///< by unit: acknowledgements
  std::uint32_t transfers = 0;                ///< begun

  /// A worker that waits in a collective does not look after its frames to servers.
  bool in_collective(const std::vector<WorkerAction>& actions) const {
    return waits && actions[next].kind == WorkerAction::Kind::await_transfer;
  }
  /// Is there what the action waits for? `ended`: transfers.
  bool has(const WorkerAction& action, std::size_t ended) const {
    if (action.kind == WorkerAction::Kind::await_values)
      return values_missing[action.unit] <= action.later * values_asked[action.unit];
    if (action.kind == WorkerAction::Kind::await_transfer) return ended + action.later >= transfers;
    return action.kind != WorkerAction::Kind::await_pushes || pushes_missing[action.unit] == 0;
  }
};

/// A piece at a server: a round of pushes, and the requests that wait for its next version.
struct HeldPiece {
  std::uint32_t version = 0;
  std::size_t micro = 0;                                         ///< that is collected now
  std::vector<std::uint32_t> pushes;                             ///< by micro-batch
  std::vector<std::pair<std::uint32_t, std::uint32_t>> waiting;  ///< workers and the versions that they asked for
  std::vector<std::pair<std::uint32_t, std::uint32_t>> unacknowledged;  ///< workers and micro-batches of pushes
};

/// A server: takes one frame after another.
struct ServedServer {
  struct Answer {
    net::Peer to;
    net::FrameType type = net::FrameType::values;
    std::size_t piece = 0;
  };

  bool busy = false;
  double work_s = 0;  ///< in all
  std::vector<HeldPiece> pieces;
  std::deque<net::FrameHeader> inbox;
  std::vector<Answer> answers;  ///< that leave once the present work is done
};

}  // namespace psring::bench
