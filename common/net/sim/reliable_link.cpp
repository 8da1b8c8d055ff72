#include <algorithm>
#include <cstring>
#include <utility>

#include <psring/common/base/crc32c.h>
#include <psring/common/net/sim/reliable_link.h>

namespace psring::net {
namespace {

constexpr unsigned kOwed = 8;            ///< arrived frames after which an acknowledgement is due at once
constexpr std::uint64_t kOvertakes = 3;  ///< later frames that arrive before a frame counts as lost

/// The checksum of the header and the payload, without the header's fields that transports fill in.
std::uint32_t check_of(FrameHeader header, std::span<const std::byte> payload) {
  header.job = 0;
  header.sender_role = Role::worker;
  header.sender_rank = 0;
  header.sequence = 0;
  header.check = 0;
  header.crc = 0;
  std::array<std::byte, kHeaderBytes> bytes;
  std::memcpy(bytes.data(), &header, kHeaderBytes);
  return crc32c(payload, crc32c(bytes));
}

/// The number with these low bits that is nearest to `near`.
std::uint64_t widen(std::uint32_t low, std::uint64_t near) {
  const auto away = static_cast<std::int32_t>(low - static_cast<std::uint32_t>(near));
  return near + static_cast<std::uint64_t>(static_cast<std::int64_t>(away));
}

}  // namespace

void ReliableLink::send(const FrameHeader& header, std::span<const std::byte> payload,
                        std::shared_ptr<const void> holder) {
  frames_.push_back({.header = header, .payload = payload, .holder = std::move(holder)});
  waiting_bytes_ += payload.size();
}

void ReliableLink::on_frame(Message message, Moment now, std::vector<Message>& delivered) {
  if (message.header.check != check_of(message.header, message.payload)) {
    ++counts_.changed;
    return;
  }
  if (!is_from_this_life(message.header)) {
    ++counts_.strangers;
    return;
  }
  take_acknowledgement(message.header, now);
  if (message.header.type != FrameType::acknowledge) take_numbered(std::move(message), delivered);
}

bool ReliableLink::is_from_this_life(const FrameHeader& header) {
  if (header.incarnation < peer_incarnation_) return false;
  if (header.incarnation > peer_incarnation_) meet(header.incarnation);
  if (header.life == options_.incarnation) return true;
  // An acknowledgement is not answered: two peers that take each other for older incarnations would never stop.
  if (header.type != FrameType::acknowledge) ++owed_;
  return false;
}

void ReliableLink::take_acknowledgement(const FrameHeader& header, Moment now) {
  const std::uint64_t taken = widen(header.taken, base_);
  if (taken > base_ + sent_) return;  // acknowledges frames that were never sent
  for (std::size_t i = 0; i < sent_; ++i) {
    const std::uint64_t place = base_ + i;
    const bool single = place > taken && place - taken <= 32 && (header.later >> (place - taken - 1) & 1) != 0;
    if ((place < taken || single) && !frames_[i].arrived) arrived(frames_[i], now);
  }
  for (; !frames_.empty() && frames_.front().arrived; --sent_, ++base_) frames_.pop_front();
  if (sent_ == 0) timer_ = kNever;
}

void ReliableLink::arrived(Sent& frame, Moment now) {
  frame.arrived = true;
  sent_bytes_ -= frame.payload.size();
  newest_arrived_ = std::max(newest_arrived_, frame.order);
  silences_ = 0;
  if (frame.again) {
    retired_.push_back(std::move(frame.holder));
  } else {
    measure(now - frame.at);
  }
  frame.holder = nullptr;
  timer_ = now + patience();
}

void ReliableLink::measure(Nanoseconds round_trip) {
  if (round_trip_ == Nanoseconds(0)) {
    round_trip_ = round_trip;
    deviation_ = round_trip / 2;
  } else {
    deviation_ += (std::chrono::abs(round_trip - round_trip_) - deviation_) / 4;
    round_trip_ += (round_trip - round_trip_) / 8;
  }
  retry_ = std::clamp(round_trip_ + 4 * deviation_, options_.first_retry, options_.last_retry);
}

Nanoseconds ReliableLink::patience() const {
  return std::min(options_.last_retry, retry_ * (1U << std::min(silences_, 10U)));
}

void ReliableLink::take_numbered(Message message, std::vector<Message>& delivered) {
  ++owed_;
  const std::uint64_t place = widen(message.header.place, taken_);
  if (place < taken_ || early_.contains(place)) {
    ++counts_.again;
    return;
  }
  if (place != taken_) {
    // A frame that is not kept is not acknowledged either, so the peer sends it again.
    if (place > taken_ + kWindowFrames || early_bytes_ + message.payload.size() > options_.window_bytes) return;
    early_bytes_ += message.payload.size();
    early_.emplace(place, std::move(message));
    return;
  }
  delivered.push_back(std::move(message));
  ++taken_;
  for (auto next = early_.begin(); next != early_.end() && next->first == taken_; next = early_.erase(next), ++taken_) {
    early_bytes_ -= next->second.payload.size();
    delivered.push_back(std::move(next->second));
  }
}

bool ReliableLink::has_room() const {
  return sent_ < frames_.size() && sent_ < kWindowFrames &&
         (sent_bytes_ == 0 || sent_bytes_ + frames_[sent_].payload.size() <= options_.window_bytes);
}

void ReliableLink::poll(Moment now, bool idle, bool leaving, std::vector<Frame>& out) {
  const std::size_t before = out.size();
  if (now >= timer_) {
    if (!leaving) {
      ++silences_;
      transmit(0, now, out);
    }
    timer_ = now + patience();
  }
  for (std::size_t i = 0; i < sent_; ++i)
    if (!frames_[i].arrived && frames_[i].order + kOvertakes <= newest_arrived_) transmit(i, now, out);
  while (has_room()) {
    waiting_bytes_ -= frames_[sent_].payload.size();
    sent_bytes_ += frames_[sent_].payload.size();
    transmit(sent_++, now, out);
  }
  if (out.size() == before && (owed_ >= kOwed || (idle && owed_ > 0))) {
    Frame& frame = out.emplace_back(Frame{Frame::Kind::acknowledge, {}, {}});
    frame.header.type = FrameType::acknowledge;
    stamp(frame.header, {});
  }
  if (out.size() > before) owed_ = 0;
}

void ReliableLink::transmit(std::size_t index, Moment now, std::vector<Frame>& out) {
  Sent& frame = frames_[index];
  frame.again = frame.order > 0;
  frame.order = ++orders_;
  frame.at = now;
  if (timer_ == kNever) timer_ = now + patience();
  frame.header.place = static_cast<std::uint32_t>(base_ + index);
  stamp(frame.header, frame.payload);
  out.push_back({frame.again ? Frame::Kind::again : Frame::Kind::first, frame.header, frame.payload});
}

void ReliableLink::stamp(FrameHeader& header, std::span<const std::byte> payload) const {
  header.incarnation = options_.incarnation;
  header.life = peer_incarnation_;
  header.taken = static_cast<std::uint32_t>(taken_);
  header.later = 0;
  for (const auto& [place, message] : early_)
    if (place - taken_ <= 32) header.later |= 1U << (place - taken_ - 1);
  header.payload_bytes = payload.size();
  header.check = check_of(header, payload);
}

void ReliableLink::meet(std::uint32_t incarnation) {
  if (incarnation <= peer_incarnation_) return;
  break_off();
  peer_incarnation_ = incarnation;
  base_ = taken_ = 0;
  early_.clear();
  early_bytes_ = 0;
  owed_ = 0;
}

void ReliableLink::break_off() {
  for (std::size_t i = 0; i < sent_; ++i)
    if (frames_[i].holder) retired_.push_back(std::move(frames_[i].holder));
  base_ += frames_.size();
  frames_.clear();
  sent_ = sent_bytes_ = waiting_bytes_ = 0;
  timer_ = kNever;
  silences_ = 0;
}

}  // namespace psring::net
