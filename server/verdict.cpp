#include <algorithm>
#include <string>
#include <utility>

#include <psring/common/base/text/error.h>
#include <psring/server/verdict.h>

namespace psring::server {

using optim::ExactSum;

std::optional<Verdict::Sums> Verdict::contribute(const Sums& mine, std::vector<net::Outgoing>& replies) {
  if (rank_ == 0) return merge(0, mine, replies);
  sums_due_ = mine.size();
  replies.push_back(frame(0, round_, to_wire(mine)));
  return std::nullopt;
}

std::optional<Verdict::Sums> Verdict::on_message(const net::Message& message, std::vector<net::Outgoing>& replies) {
  if (is_repeated(message)) {
    replies.push_back(frame(message.header.sender_rank, round_ - 1, wire_[(round_ - 1) % 2]));
    return std::nullopt;
  }
  check_due(message);
  Sums sums;
  for (auto left = message.payload; !left.empty(); left = left.subspan(ExactSum::kBytes))
    sums.push_back(ExactSum::load(left.first<ExactSum::kBytes>()));
  if (rank_ == 0) return merge(message.header.sender_rank, sums, replies);
  sums_due_ = 0;
  ++round_;
  return sums;
}

void Verdict::begin_epoch() {
  sums_due_ = 0;
  merged_.assign(servers_, false);
  total_.clear();
}

std::span<const std::byte> Verdict::last_total() const {
  if (rank_ > 0 || round_ == 0) return {};
  return wire_[(round_ - 1) % 2];
}

void Verdict::restore(std::uint64_t round, std::span<const std::byte> last_total) {
  if ((rank_ == 0 && round > 0) == last_total.empty() || last_total.size() % ExactSum::kBytes != 0)
    fail(ErrorKind::protocol, "{} bytes of the total of a verdict's round {}", last_total.size(), round);
  begin_epoch();
  round_ = round;
  if (!last_total.empty()) wire_[(round - 1) % 2].assign(last_total.begin(), last_total.end());
}

bool Verdict::is_repeated(const net::Message& message) const {
  const net::FrameHeader& header = message.header;
  return rank_ == 0 && header.sender_role == net::Role::server && header.sender_rank > 0 &&
         header.sender_rank < servers_ && header.step + 1 == round_ &&
         message.payload.size() == wire_[header.step % 2].size();
}

void Verdict::check_due(const net::Message& message) const {
  const net::FrameHeader& header = message.header;
  const std::string from = to_string(header.sender());
  if (header.step != round_)
    fail(ErrorKind::protocol, "a verdict of {} for round {}, round {} is due", from, header.step, round_);
  const bool to_be_merged = header.sender_rank > 0 && header.sender_rank < servers_ && !merged_[header.sender_rank];
  const bool due = rank_ == 0 ? to_be_merged : header.sender_rank == 0 && sums_due_ > 0;
  if (header.sender_role != net::Role::server || !due)
    fail(ErrorKind::protocol, "a verdict of {} for round {}, which is not due", from, round_);
  const std::size_t sums = rank_ == 0 ? total_.size() : sums_due_;  // 0 at server 0: the first part sets the number
  const std::size_t bytes = message.payload.size();
  if (bytes == 0 || bytes % ExactSum::kBytes != 0 || (sums != 0 && bytes != sums * ExactSum::kBytes))
    fail(ErrorKind::protocol, "a verdict of {} with {} bytes, {} sums of {} are due", from, bytes, sums,
         ExactSum::kBytes);
}

std::optional<Verdict::Sums> Verdict::merge(std::uint32_t rank, const Sums& part, std::vector<net::Outgoing>& replies) {
  if (total_.empty()) total_.assign(part.size(), {});
  if (part.size() != total_.size())
    fail(ErrorKind::protocol, "{} sums of server {}, others have {}", part.size(), rank, total_.size());
  for (std::size_t i = 0; i < part.size(); ++i) total_[i].merge(part[i]);
  merged_[rank] = true;
  if (std::find(merged_.begin(), merged_.end(), false) != merged_.end()) return std::nullopt;
  const std::span<const std::byte> wire = to_wire(total_);
  for (std::uint32_t other = 1; other < servers_; ++other) replies.push_back(frame(other, round_, wire));
  merged_.assign(servers_, false);
  ++round_;
  return std::exchange(total_, {});
}

std::span<const std::byte> Verdict::to_wire(const Sums& sums) {
  std::vector<std::byte>& wire = wire_[round_ % 2];
  wire.resize(sums.size() * ExactSum::kBytes);
  for (std::size_t i = 0; i < sums.size(); ++i)
    sums[i].store(std::span(wire).subspan(i * ExactSum::kBytes).first<ExactSum::kBytes>());
  return wire;
}

net::Outgoing Verdict::frame(std::uint32_t to, std::uint64_t round, std::span<const std::byte> wire) const {
  net::FrameHeader header;
  header.type = net::FrameType::verdict;
  header.step = round;
  return {{net::Role::server, to}, header, wire};
}

}  // namespace psring::server
