#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include <psring/common/base/byte_ledger.h>
#include <psring/common/base/clock.h>
#include <psring/common/net/link_shaping.h>
#include <psring/common/net/sim/lossy_wire.h>
#include <psring/common/net/transport.h>

namespace psring::net {

/// Peers in one process on a simulated network, with a clock that only the network moves. Each peer has a thread, but
/// one thread at a time runs: it runs until it waits in Transport::receive, and computing takes no time. When all
/// threads wait, the clock moves to the next arrival or deadline. The seed orders the events of one moment. So equal
/// options repeat a run to the nanosecond and to the bit.
///
/// Every peer has a network card as LinkShaper describes it, unless the options say who shares one; a frame takes its
/// payload and 128 bytes of header. Payloads are copied by `send`. A look into an empty inbox takes 1 us.
///
/// The network may lose, duplicate, corrupt and delay frames, and peers may die and come back, as the options say.
/// Peers are counted by their places; in a network of workers alone, the places are their ranks.
class SimulatedNetwork {
 public:
  struct Death {
    std::size_t place = 0;
    Nanoseconds at{0};
    /// The time from then until the peer runs again as its next incarnation. Frames that are in flight to or from the
    /// previous incarnation are dropped. None: the peer does not return.
    std::optional<Nanoseconds> returns_after{};
  };
  /// A frame that is lost or corrupted has used the cards all the same.
  using Trouble = WireFaults;
  /// Hears what happens on the network; called in order, by the thread of the peer that runs. Must not use the network.
  class Listener {
   public:
    virtual ~Listener() = default;
    /// A frame left its sender: `departs` is when its last byte has left the sender's card.
    virtual void on_send(std::size_t from, std::size_t to, const FrameHeader& header, Moment now, Moment departs) = 0;
    /// A frame has come whole to the inbox of its receiver.
    virtual void on_arrival(std::size_t from, std::size_t to, const FrameHeader& header, Moment now) = 0;
    virtual void on_death(std::size_t place, Moment now) = 0;
    virtual void on_return(std::size_t place, Moment now) = 0;
  };
  struct Options {
    std::size_t ranks = 1;         ///< the number of workers, if no peers are named
    std::vector<Peer> peers = {};  ///< by their places
    /// By place: the process that the peer lives in, which has one card. Frames within a process use no card and take
    /// no time. Empty: each peer has a process of its own.
    std::vector<std::size_t> processes = {};
    /// By place: the host of the peer's process. The processes of a host share its card to other hosts, and each has a
    /// link of its own, `within`, to the others of the host. Empty: each process is a host of its own.
    std::vector<std::size_t> hosts = {};
    LinkSpec within{1e9, std::chrono::microseconds(100)};
    LinkSpec link{1e9, std::chrono::microseconds(100)};  ///< a card
    /// True: frames that wait for the card are in flight, windows are those of a shaped link, and a wait ends when a
    /// frame has left. False: senders see nothing in flight, so that frames queue at the card in the order of `send`.
    bool windows = false;
    /// The bytes of a link's buffer, in each direction: a frame occupies its payload and header there from the sender's
    /// card until the receiver's `receive` returns the frame. A frame that does not fit waits at its sender, and the
    /// frames behind it too; a larger frame has an empty buffer for itself. 0: no limit.
    std::size_t link_bytes = 0;
    /// A planted fault: a frame occupies the buffer until its receiver drops the message.
    bool lends_buffers = false;
    std::uint64_t seed = 0;
    std::uint64_t job = 1;
    Trouble trouble{};
    /// From its death on, a peer's `receive` throws and the peer sends nothing. The `receive` of every other peer
    /// throws peer_lost, once, after the link's delay.
    std::vector<Death> deaths;
    /// If only deadlines and probes happen for this long, the run is a deadlock. Longer than all bounded waits.
    Nanoseconds patience = std::chrono::seconds(60);
    /// A run that takes longer than this virtual time is a deadlock, too.
    Nanoseconds limit = Nanoseconds::max();
    Listener* listener = nullptr;  ///< must outlive the network; null: nobody listens
  };

  explicit SimulatedNetwork(const Options& options);
  ~SimulatedNetwork();

  /// The transport of a peer, for use within `run`; once all peers have ended, its `receive` returns at once. Belongs
  /// to the network.
  Transport& transport(std::size_t place);
  Transport& transport(Peer peer);
  /// The number of times that the peer has come back so far.
  std::uint32_t incarnation(std::size_t place) const;
  /// Returns true if the peer has died and has not come back.
  bool dead(std::size_t place) const;
  /// Kills the peer now, as Options::deaths does; for use within `run`. Does nothing if the peer is dead or has ended.
  void kill(std::size_t place, std::optional<Nanoseconds> returns_after = {});
  const ByteLedger& bytes(std::size_t place) const;
  /// Begins at Moment{}.
  const Clock& clock() const;

  /// Runs `body` at each place, and once more for each return. Returns when all have ended; a peer that has ended still
  /// takes frames. Throws the error of the first peer that failed without having died. In a deadlock all waiting
  /// `receive` throw timeout: "deadlock at 1.500000 s: workers 0, 2 wait; ended: 1".
  void run(const std::function<void(std::size_t place)>& body);

 private:
  class State;
  class Endpoint;
  std::unique_ptr<State> state_;
  std::vector<std::unique_ptr<Endpoint>> endpoints_;
};

}  // namespace psring::net
