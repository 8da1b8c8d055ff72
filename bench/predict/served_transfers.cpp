#include <algorithm>

#include <psring/bench/predict/served_transfers.h>

namespace psring::bench {

/// Legs within hosts, and rounds one after the other, take time in which the card is free for rows.
ServedFrame ServedTransfers::begin(std::uint32_t worker, std::uint32_t number, const std::vector<Leg>& legs) {
  const bool between = job_.mesh.hosts > 1;
  double card_s = 0;
  double whole_s = 0;
  double work_s = 0;
  for (const Leg& leg : legs) {
    if (leg.station == job_.station(between ? StepStation::card_out : StepStation::within)) card_s += leg.service_s;
    const bool works = leg.station == job_.station(StepStation::processors);
    (works ? work_s : whole_s) += std::max(leg.service_s, leg.alone_s);
    work_s += leg.work.service_s;
  }
  const net::LinkSpec& link = places_.between();
  transfers_.resize(std::max<std::size_t>(transfers_.size(), number + 1));
  transfers_[number].later_s =
      std::max(0.0, std::max(whole_s, work_s) - card_s - seconds(link.delay) - job_.costs.exchange.hop_s);
  const auto workers = static_cast<std::uint32_t>(places_.workers());
  const auto per_host = static_cast<std::uint32_t>(places_.per_host());
  return {.header = {.type = net::FrameType::message, .sender_rank = worker, .step = number},
          .to = {net::Role::worker, (worker + per_host) % workers},
          .bytes = card_s * link.bits_per_second / 8 / per_host,
          .headers = 0};
}

std::optional<double> ServedTransfers::take(const ServedFrame& frame) {
  Transfer& transfer = transfers_[frame.header.step];
  return ++transfer.arrived == places_.workers() ? std::optional(transfer.later_s) : std::nullopt;
}

}  // namespace psring::bench
