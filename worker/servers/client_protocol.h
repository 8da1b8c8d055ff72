#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include <psring/common/base/elements.h>
#include <psring/common/base/pieces.h>
#include <psring/common/net/layout_message.h>
#include <psring/common/net/outbox.h>

namespace psring::optim {
class Codec;
}  // namespace psring::optim

namespace psring::worker {

/// The worker's side of push and pull: cuts units into pieces, knows which server owns each, and records requests and
/// arrivals. A pure state machine: calls and frames in, frames out. Buffers are whole units, and must stay where they
/// are until `has` or `acknowledged` says so.
class ClientProtocol {
 public:
  /// `mark` gives the number by which the servers' answers can be stored straight into an address (0: none).
  using Mark = std::function<std::uint64_t(const void*)>;
  using Frames = std::vector<net::Outgoing>;

  /// A unit's pieces leave in turn to all owners, first to `first_owner`. If workers have different first owners, no
  /// server has to take the pieces of all workers at once while the others wait. `copied_pushes`: servers copy pushes,
  /// and acknowledge them at once. `codec`: encodes each piece of a gradient, and the encoded bytes are pushed one
  /// after the other; null: gradients are pushed as they are.
  ClientProtocol(Layout layout, Mark mark, std::size_t first_owner = 0, const optim::Codec* codec = nullptr,
                 bool copied_pushes = false);

  const Layout& layout() const { return layout_; }

  /// Asks every server to take the layout. `initial_by_worker`: worker 0 will send `initial` values.
  void open(std::uint64_t seed, bool initial_by_worker, Frames& out);
  bool opened() const { return !layout_bytes_.empty() && layouts_missing_.empty(); }
  /// Version to resume from, once open: the minimum over servers (Shard), or the first version of a new job. Under bsp
  /// some servers may be one version further, and still have this one.
  std::uint64_t version() const;
  /// How a server that is at `version` says that losses are scaled there (optim::LossScaler); empty: they are not.
  std::span<const std::byte> loss_scale() const;
  /// Sends the values of a unit. REQUIRES: `open` was called, as for all that follows.
  void initial(std::size_t unit, std::span<const float> values, Frames& out);

  /// `micro`: which of the step's pushes it is, below Layout::pushes.
  void push(std::size_t unit, std::uint64_t step, std::size_t micro, ConstElements gradient, Frames& out);
  void pull(std::size_t unit, std::uint64_t version, Elements into, bool start_up, Frames& out);
  /// Pushes the step's gradient and asks for the version that it leads to: step + 1.
  void push_pull(std::size_t unit, std::uint64_t step, ConstElements gradient, Elements into, Frames& out);

  /// Tells every server that this worker pushes nothing more.
  void leave(Frames& out) const;

  /// Asks every server to write its part of the checkpoint of a version, and to answer once `others` other workers have
  /// written their parts, too.
  void save(std::uint64_t version, std::size_t others, Frames& out);
  /// Tells every server that this worker's part is on the disk.
  void written(std::uint64_t version, Frames& out) const;
  bool saved() const { return saves_missing_.empty(); }

  /// Takes a server's frame. Throws protocol where it answers nothing that was asked, or says `failed`.
  void on_message(const net::Message& message);

  /// Has the last pull of the unit arrived whole, in at least this version?
  bool has(std::size_t unit, std::uint64_t version) const;
  /// Have values of the unit come once?
  bool arrived(std::size_t unit) const;
  /// Are values of the unit awaited?
  bool pulling(std::size_t unit) const { return units_[unit].missing > 0; }
  /// The version that all pieces of the unit have at their servers, as far as the servers have reported it.
  std::uint64_t heard(std::size_t unit) const;
  /// The reported staleness of this worker's gradients, summed over pieces since the last call.
  struct Staleness {
    std::uint64_t sum = 0;
    std::uint64_t updates = 0;
  };
  Staleness take_staleness() { return std::exchange(staleness_, {}); }
  /// Adds the staleness that a frame reports of an update by this worker's gradient.
  void add_staleness(const net::FrameHeader& header);
  /// Did a server say that the update to this version was skipped? All say the same of it.
  bool skipped(std::uint64_t version) const { return last_skipped_ == version; }
  /// Have the servers confirmed the last push of the unit?
  bool acknowledged(std::size_t unit) const { return units_[unit].unacknowledged == 0; }
  /// Is nothing of the unit waited for any more?
  bool settled(std::size_t unit) const { return units_[unit].missing == 0 && acknowledged(unit); }

 private:
  struct PieceExchange {
    Piece piece;
    std::uint64_t version = 0;  ///< arrived
    std::uint64_t wanted = 0;
    std::uint64_t heard = 0;  ///< the server's last
    bool arrived = false;     ///< anything, yet
    bool waiting = false;
    bool updates = false;  ///< the awaited answer reports an update by this worker's gradient
    std::size_t unacknowledged = 0;
    Range pushed;  ///< of the pushed part of its unit: elements, or bytes of the codec
  };
  struct Unit {
    std::size_t first = 0;  ///< its exchanges: [first, last)
    std::size_t last = 0;
    Elements into;
    std::size_t missing = 0;  ///< pieces that are waited for
    std::size_t unacknowledged = 0;
  };

  /// Cuts the units into pieces: for a large model that takes a while, and predictions do without.
  void make_exchanges();
  net::FrameHeader header(const PieceExchange& exchange, net::FrameType type, DType dtype) const;
  net::FrameHeader push_header(const PieceExchange& exchange, net::FrameType type, std::uint64_t step) const;
  /// Calls `body` with each exchange of a unit, in the order in which their frames leave.
  void for_each_exchange(const Unit& unit, auto body) {
    for (std::size_t i = unit.first; i < unit.last; ++i) body(exchanges_[order_[i]]);
  }
  void ask(Unit& unit, PieceExchange& exchange, std::uint64_t version, net::FrameHeader& header);
  void on_values(const net::Message& message);
  PieceExchange& find(const net::FrameHeader& header);

  const Layout layout_;
  const Mark mark_;
  const std::size_t first_owner_;
  const optim::Codec* const codec_;
  const bool copied_pushes_;
  std::vector<PieceExchange> exchanges_;
  std::vector<std::size_t> order_;  ///< the exchanges, unit by unit, in the order in which their frames leave
  std::vector<Unit> units_;
  std::optional<std::uint64_t> last_skipped_;
  Staleness staleness_;
  std::vector<std::byte> layout_bytes_;
  struct Opened {
    std::uint64_t version = 0;
    std::vector<std::byte> loss_scale;
  };
  std::map<std::uint32_t, Opened> opened_;   ///< what servers answered to the layout
  std::set<std::uint32_t> layouts_missing_;  ///< servers that have not taken it yet
  std::set<std::uint32_t> saves_missing_;    ///< servers that have not written their parts yet
};

}  // namespace psring::worker
