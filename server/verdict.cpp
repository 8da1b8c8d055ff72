#include <psring/common/base/error.h>
#include <psring/server/verdict.h>

namespace psring::server {

using optim::ExactSum;

std::optional<Verdict::Sums> Verdict::contribute(const Sums& mine, std::vector<net::Outgoing>& replies) {
  if (rank_ == 0) return merge(mine, replies);
  replies.push_back(frame({net::Role::server, 0}, mine));
  return std::nullopt;
}

std::optional<Verdict::Sums> Verdict::on_message(const net::Message& message, std::vector<net::Outgoing>& replies) {
  const net::FrameHeader& header = message.header;
  const bool part = rank_ == 0;
  if (header.sender_role != net::Role::server || part == (header.sender_rank == 0) || header.step != round_ ||
      message.payload.size() % ExactSum::kBytes != 0)
    fail(ErrorKind::protocol, "a verdict of {} for round {}, round {} is due", to_string(header.sender()), header.step,
         round_);
  Sums sums;
  for (auto left = message.payload; !left.empty(); left = left.subspan(ExactSum::kBytes))
    sums.push_back(ExactSum::load(left.first<ExactSum::kBytes>()));
  if (part) return merge(sums, replies);
  ++round_;
  return sums;
}

std::optional<Verdict::Sums> Verdict::merge(const Sums& part, std::vector<net::Outgoing>& replies) {
  if (parts_ == 0) total_.assign(part.size(), {});
  if (part.size() != total_.size()) fail(ErrorKind::protocol, "{} sums where {} are due", part.size(), total_.size());
  for (std::size_t i = 0; i < part.size(); ++i) total_[i].merge(part[i]);
  if (++parts_ < servers_) return std::nullopt;
  for (std::uint32_t rank = 1; rank < servers_; ++rank) replies.push_back(frame({net::Role::server, rank}, total_));
  parts_ = 0;
  ++round_;
  return std::move(total_);
}

net::Outgoing Verdict::frame(net::Peer to, const Sums& sums) {
  std::vector<std::byte>& wire = wire_[round_ % 2];
  wire.resize(sums.size() * ExactSum::kBytes);
  for (std::size_t i = 0; i < sums.size(); ++i)
    sums[i].store(std::span(wire).subspan(i * ExactSum::kBytes).first<ExactSum::kBytes>());
  net::FrameHeader header;
  header.type = net::FrameType::verdict;
  header.step = round_;
  return {to, header, wire};
}

}  // namespace psring::server
