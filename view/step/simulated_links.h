#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <psring/common/net/sim/simulated.h>
#include <psring/common/net/transport.h>
#include <psring/common/proc/control/control_messages.h>

namespace psring::view {

/// A role's links to the other members of one membership epoch, over the simulated network. In the frames, a role is
/// named by its duty in the epoch; on the network, by its place. Frames of other epochs are dropped, unless a reliable
/// transport above these links looks at the epochs.
class SimulatedLinks final : public net::Transport {
 public:
  /// `epoch`: stamped on frames; none: a reliable transport stamps them.
  SimulatedLinks(net::SimulatedNetwork& network, std::size_t place, const std::vector<net::Peer>& places,
                 const std::vector<net::Member>& members, std::optional<std::uint32_t> epoch);

  void send(net::Peer to, net::FrameHeader header, std::span<const std::byte> payload) override;
  std::optional<net::Message> receive(Moment deadline) override;
  std::size_t in_flight_bytes(net::Peer peer) const override { return inner_.in_flight_bytes(places_.at(peer)); }
  std::size_t window_bytes(net::Peer peer) const override { return inner_.window_bytes(places_.at(peer)); }
  std::string describe(net::Peer peer) const override { return inner_.describe(places_.at(peer)); }
  void wake() override { inner_.wake(); }

 private:
  bool drain_one();
  std::optional<net::Message> receive_any(Moment deadline);

  net::SimulatedNetwork& network_;
  const std::size_t place_;
  net::Transport& inner_;
  const std::optional<std::uint32_t> epoch_;
  std::map<net::Peer, net::Peer> places_;           ///< by duty
  std::map<net::Peer, net::Peer> duties_;           ///< by place
  std::map<std::size_t, std::uint32_t> processes_;  ///< numbers of the members' processes, by place
  std::deque<net::Message> early_;  ///< frames of this epoch that arrived before this role entered the epoch
};

/// Does the frame belong to a collective, or to a message, between workers?
constexpr bool is_of_collective(net::FrameType type) {
  return type >= net::FrameType::all_reduce && type <= net::FrameType::message;
}

/// Divides a role's links: collectives see the frames between workers, and the rest of the role sees all others.
class SplitLinks {
 public:
  /// REQUIRES: `links` outlives it.
  explicit SplitLinks(net::Transport& links);

  net::Transport& collectives() { return collectives_; }
  net::Transport& others() { return others_; }

 private:
  class Half final : public net::Transport {
   public:
    Half(SplitLinks& whole, bool collective) : whole_(whole), collective_(collective) {}
    void send(net::Peer to, net::FrameHeader header, std::span<const std::byte> payload) override {
      whole_.links_.send(to, header, payload);
    }
    std::optional<net::Message> receive(Moment deadline) override { return whole_.receive(collective_, deadline); }
    std::size_t in_flight_bytes(net::Peer peer) const override { return whole_.links_.in_flight_bytes(peer); }
    std::size_t window_bytes(net::Peer peer) const override { return whole_.links_.window_bytes(peer); }
    std::string describe(net::Peer peer) const override { return whole_.links_.describe(peer); }
    void wake() override { whole_.links_.wake(); }

   private:
    SplitLinks& whole_;
    const bool collective_;
  };

  std::optional<net::Message> receive(bool collective, Moment deadline);

  net::Transport& links_;
  Half collectives_{*this, true};
  Half others_{*this, false};
  std::deque<net::Message> waiting_[2];  ///< frames that the other half took from the links; [1]: of collectives
};

}  // namespace psring::view
