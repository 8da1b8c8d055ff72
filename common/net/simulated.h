#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include <psring/common/base/byte_ledger.h>
#include <psring/common/base/clock.h>
#include <psring/common/net/link_shaping.h>
#include <psring/common/net/transport.h>

namespace psring::net {

/// Workers in one process, on a network that is computed, with a clock that only the network moves. Each rank has a
/// thread, but one at a time runs: it goes on until it waits in Transport::receive, and computing takes no time. When
/// all wait, the clock goes to the next arrival or deadline. What happens at the same time happens in an order that the
/// seed chooses. So a run is repeated, to the nanosecond and the bit, by its options.
///
/// Every rank has a card as LinkShaper describes it; a frame takes its payload and 128 bytes of header. Payloads are
/// copied when they are sent: nothing is in flight as far as senders can see. A look into an empty inbox takes 1 us.
class SimulatedNetwork {
 public:
  struct Death {
    std::size_t rank = 0;
    Nanoseconds at{0};
  };
  struct Options {
    std::size_t ranks = 1;
    LinkSpec link{1e9, std::chrono::microseconds(100)};
    std::uint64_t seed = 0;
    std::uint64_t job = 1;
    /// A rank's `receive` throws from then on, it sends nothing more, and the others' throws peer_lost, once, after
    /// the link's delay.
    std::vector<Death> deaths;
    /// With nothing but deadlines and probes for so long, nobody can go on: longer than what waits are bounded by.
    Nanoseconds patience = std::chrono::seconds(60);
  };

  explicit SimulatedNetwork(const Options& options);
  ~SimulatedNetwork();

  /// Worker `rank`'s, as long as the network lives; for use within `run`.
  Transport& transport(std::size_t rank);
  const ByteLedger& bytes(std::size_t rank) const;
  /// Begins at Moment{}.
  const Clock& clock() const;

  /// Runs `body` at each rank; once. Returns when all have ended, and throws the error of the first rank that has one
  /// and did not die. A rank that has ended still takes frames. Where no rank can go on, all waiting `receive` throw
  /// timeout: "deadlock at 1.500000 s: workers 0, 2 wait; ended: 1".
  void run(const std::function<void(std::size_t rank)>& body);

 private:
  class State;
  class Endpoint;
  std::unique_ptr<State> state_;
  std::vector<std::unique_ptr<Endpoint>> endpoints_;
};

}  // namespace psring::net
