#include <algorithm>
#include <utility>

#include <psring/common/base/text/error.h>
#include <psring/view/step/simulated_control.h>
#include <psring/view/step/simulated_links.h>

namespace psring::view {

using net::Message;
using net::Peer;

SimulatedLinks::SimulatedLinks(net::SimulatedNetwork& network, std::size_t place, const std::vector<Peer>& places,
                               const std::vector<net::Member>& members, std::optional<std::uint32_t> epoch)
    : network_(network), place_(place), inner_(network.transport(place)), epoch_(epoch) {
  for (const net::Member& member : members) {
    const std::size_t at = std::stoul(member.addresses.at("place"));
    places_[member.peer] = places[at];
    duties_[places[at]] = member.peer;
    processes_[at] = member.pid;
  }
  while (drain_one()) {
  }
}

void SimulatedLinks::send(Peer to, net::FrameHeader header, std::span<const std::byte> payload) {
  if (epoch_) header.incarnation = *epoch_;
  inner_.send(places_.at(to), header, payload);
}

std::optional<Message> SimulatedLinks::receive(Moment deadline) {
  for (;;) {
    std::optional<Message> message;
    if (early_.empty()) {
      message = receive_any(deadline);
    } else {
      message = std::move(early_.front());
      early_.pop_front();
    }
    if (!message) return message;
    const auto duty = duties_.find(message->header.sender());
    if (duty == duties_.end() || message->header.incarnation != epoch_.value_or(message->header.incarnation)) continue;
    message->header.sender_role = duty->second.role;
    message->header.sender_rank = duty->second.rank;
    return message;
  }
}

/// The links are new: losses that the network told of before concern the links of earlier epochs.
bool SimulatedLinks::drain_one() {
  try {
    std::optional<Message> message = inner_.receive(Moment::min());
    if (!message) return false;
    if (epoch_) early_.push_back(std::move(*message));
  } catch (const Error& error) {
    if (network_.dead(place_)) throw Died();
    if (error.kind() != ErrorKind::peer_lost) throw;
  }
  return true;
}

/// The network tells every peer of every loss. Losses of peers that are not members of this epoch do not count.
std::optional<Message> SimulatedLinks::receive_any(Moment deadline) {
  for (;;) {
    try {
      return inner_.receive(deadline);
    } catch (const Error& error) {
      const bool all_live = std::all_of(processes_.begin(), processes_.end(), [&](const auto& process) {
        return !network_.dead(process.first) && network_.incarnation(process.first) + 1 == process.second;
      });
      if (error.kind() != ErrorKind::peer_lost || !all_live) throw;
    }
  }
}

SplitLinks::SplitLinks(net::Transport& links) : links_(links) {}

std::optional<Message> SplitLinks::receive(bool collective, Moment deadline) {
  std::deque<Message>& mine = waiting_[collective ? 1 : 0];
  for (;;) {
    if (!mine.empty()) {
      Message message = std::move(mine.front());
      mine.pop_front();
      return message;
    }
    std::optional<Message> message = links_.receive(deadline);
    if (!message) return message;
    waiting_[message->header.sender_role == net::Role::worker ? 1 : 0].push_back(std::move(*message));
  }
}

}  // namespace psring::view
