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
#include <psring/common/net/transport.h>

namespace psring::net {

/// Peers in one process, on a network that is computed, with a clock that only the network moves. Each peer has a
/// thread, but one at a time runs: it goes on until it waits in Transport::receive, and computing takes no time. When
/// all wait, the clock goes to the next arrival or deadline. What happens at the same time happens in an order that the
/// seed chooses. So a run is repeated, to the nanosecond and the bit, by its options.
///
/// Every peer has a card as LinkShaper describes it; a frame takes its payload and 128 bytes of header. Payloads are
/// copied when they are sent: nothing is in flight as far as senders can see. A look into an empty inbox takes 1 us.
///
/// It may lose, double, change and delay frames, and peers may die and come back; all of that, too, follows from the
/// options. Peers are counted by their places; where only workers are there, these are their ranks.
class SimulatedNetwork {
 public:
  struct Death {
    std::size_t place = 0;
    Nanoseconds at{0};
    /// The time from then until it runs again as its next incarnation. What was on its way to or from the one before
    /// is void. None: it does not.
    std::optional<Nanoseconds> returns_after{};
  };
  /// What happens to a frame on its way, as probabilities. What is lost or changed has used the cards all the same.
  struct Trouble {
    double drop = 0;
    double duplicate = 0;
    double corrupt = 0;          ///< one bit of its payload, or without one of its step, is another
    Nanoseconds extra_delay{0};  ///< up to so much for each, so that frames overtake each other
  };
  struct Options {
    std::size_t ranks = 1;         ///< workers, where no peers are named
    std::vector<Peer> peers = {};  ///< by their places
    LinkSpec link{1e9, std::chrono::microseconds(100)};
    std::uint64_t seed = 0;
    std::uint64_t job = 1;
    Trouble trouble{};
    /// A peer's `receive` throws from then on, it sends nothing more, and the others' throws peer_lost, once, after
    /// the link's delay.
    std::vector<Death> deaths;
    /// With nothing but deadlines and probes for so long, nobody can go on: longer than what waits are bounded by.
    Nanoseconds patience = std::chrono::seconds(60);
    /// A run that is longer has no end, whatever arrives.
    Nanoseconds limit = Nanoseconds::max();
  };

  explicit SimulatedNetwork(const Options& options);
  ~SimulatedNetwork();

  /// A peer's, as long as the network lives; for use within `run`.
  Transport& transport(std::size_t place);
  Transport& transport(Peer peer);
  /// How often it has come back so far.
  std::uint32_t incarnation(std::size_t place) const;
  /// It has died, and has not come back.
  bool dead(std::size_t place) const;
  /// For use within `run`: it dies now, as of Options::deaths. Where it is dead or has ended that changes nothing.
  void kill(std::size_t place, std::optional<Nanoseconds> returns_after = {});
  const ByteLedger& bytes(std::size_t place) const;
  /// Begins at Moment{}.
  const Clock& clock() const;

  /// Runs `body` at each place; once, and once more for each return. Returns when all have ended, and throws the error
  /// of the first that has one and did not die. Who has ended still takes frames. Where nobody can go on, or the limit
  /// has come, all waiting `receive` throw timeout: "deadlock at 1.500000 s: workers 0, 2 wait; ended: 1".
  void run(const std::function<void(std::size_t place)>& body);

 private:
  class State;
  class Endpoint;
  std::unique_ptr<State> state_;
  std::vector<std::unique_ptr<Endpoint>> endpoints_;
};

}  // namespace psring::net
