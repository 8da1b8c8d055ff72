#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>

#include <psring/common/base/byte_ledger.h>
#include <psring/common/base/clock.h>
#include <psring/common/net/link_shaping.h>
#include <psring/common/net/transport.h>

namespace psring::net {

/// One peer of a simulated network: its network card, the messages and losses that wait to be received, and its state.
struct SimulatedPeer {
  SimulatedPeer(Peer who, const LinkSpec& link, const LinkSpec& within) : peer(who), card(link), inner(within) {}

  /// Returns true if a receive of the peer ends now.
  bool has_news() const { return !inbox.empty() || !lost.empty() || woken || dead || stuck; }
  /// Returns true if the peer's thread can run.
  bool can_run() const {
    return !ended && (!away || stuck) && (!waits || expired || (sleeps ? dead || stuck : has_news()));
  }
  void begin_wait(Moment until) {
    deadline = until;
    waits = true;
  }
  void begin_sleep(Moment until) {
    begin_wait(until);
    sleeps = true;
  }
  void end_wait() { waits = sleeps = expired = false; }
  void expire(Moment time) { expired = expired || (waits && deadline <= time); }
  /// Starts the peer's next incarnation. Messages and losses that wait for the previous incarnation are dropped.
  void come_back() {
    inbox.clear();
    lost.clear();
    waiting_bytes.clear();
    woken = dead = away = false;
    ++incarnation;
  }

  const Peer peer;
  LinkShaper card;
  LinkShaper inner;  ///< the link of the peer's process to others of its host
  ByteLedger ledger;
  std::deque<Message> inbox;
  std::deque<std::size_t> lost;  ///< places of lost peers whose loss was not reported to this peer yet
  std::map<std::size_t, std::size_t> waiting_bytes;  ///< by receiver: payload that waits for the card
  bool wants_room = false;                           ///< has seen bytes in flight: `receive` ends when some have left
  Moment deadline = kNever;                          ///< the end of the wait
  bool waits = false;
  bool sleeps = false;  ///< the wait is a sleep, which no message ends
  bool expired = false;
  bool woken = false;
  bool dead = false;
  std::optional<Moment> returns;  ///< when a dead peer comes back; none: it does not
  bool away = false;              ///< the dead peer's thread has ended its work and waits for the return
  bool ended = false;             ///< the peer's thread has ended for good
  bool stuck = false;             ///< the network has found a deadlock
  std::uint32_t incarnation = 0;
};

}  // namespace psring::net
