#include <algorithm>
#include <bit>
#include <cmath>
#include <memory>
#include <utility>
#include <vector>

#include <psring/bench/predict/closed_forms.h>

namespace psring::bench {
namespace {

double segments_of(double bytes, double segment) { return std::max(1.0, std::ceil(bytes / segment - 1e-9)); }

/// Bytes on the wire of a message of `bytes` in segments, headers counted.
double framed(double bytes, double segment) { return bytes + kHeaderBytes * segments_of(bytes, segment); }

/// Bounds the work for a collective of thousands of ranks or segments.
constexpr std::size_t kMostFrames = 512;

/// A part of a vector: what one message each round carries, unless it is longer than a segment.
struct Part {
  double bytes = 0;
  double framed = 0;             ///< bytes on the wire, with headers
  double first = 0;              ///< bytes of the longest message
  double last = 0;               ///< bytes of the last message
  double count = 0;              ///< messages
  std::vector<double> messages;  ///< bytes of each; empty if there are more than kMostFrames
};

Part part_of(std::span<const double> pieces, double segment) {
  Part part;
  for (const double piece : pieces) {
    part.bytes += piece;
    part.framed += framed(piece, segment);
    part.first = std::max(part.first, std::min(piece, segment));
    if (piece <= 0 && part.count > 0) continue;
    const double count = segments_of(piece, segment);
    part.count += count;
    part.last = std::min(piece - (count - 1) * segment, segment);
    if (part.count > kMostFrames) continue;
    part.messages.insert(part.messages.end(), static_cast<std::size_t>(count) - 1, segment);
    part.messages.push_back(part.last);
  }
  if (part.count > kMostFrames) part.messages.clear();
  return part;
}

/// Makes the frames of rounds: in each one those of the first sender, then those of the next. A frame of one round
/// leaves when the frame with the same number of the round before has arrived; if `whole`, when all of its sender's
/// frames of the round before have.
class FrameList {
 public:
  FrameList(const Wire& wire, bool whole) : wire_(wire), whole_(whole) {}

  /// `factor`: the round stands for as many rounds.
  void add_round(std::span<const double> messages, double factor = 1) {
    auto& frames = made_.frames;
    const std::size_t begin = frames.size();
    for (std::size_t sender = 0; sender < wire_.senders; ++sender) {
      const std::size_t first = frames.size();
      for (const double bytes : messages)
        frames.push_back({.service_s = factor * (bytes + kHeaderBytes) / wire_.bytes_per_s(),
                          .latency_s = factor * wire_.latency_s(bytes)});
      if (begin > 0 && whole_) {
        TimedFrame& last = frames[before_ + (sender + 1) * (begin - before_) / wire_.senders - 1];
        last.first = first;
        last.count = messages.size();
      }
    }
    if (begin == 0) made_.at_once = frames.size();
    for (std::size_t i = before_; !whole_ && i < begin; ++i)
      frames[i].first = begin + (i - before_), frames[i].count = 1;
    before_ = begin;
  }
  /// `later_s`: TimedFrames::later_s.
  std::shared_ptr<const TimedFrames> take(double later_s) {
    made_.later_s = later_s;
    return std::make_shared<const TimedFrames>(std::move(made_));
  }
  /// From the first frame's departure until all have arrived, if nothing else uses the card.
  double alone_s() const {
    std::vector<double> ready(made_.frames.size(), 0);
    double free = 0;
    double end = 0;
    for (std::size_t i = 0; i < made_.frames.size(); ++i) {
      const TimedFrame& frame = made_.frames[i];
      free = std::max(free, ready[i]) + frame.service_s;
      end = std::max(end, free + frame.latency_s);
      for (std::size_t next = frame.first; next < frame.first + frame.count; ++next)
        ready[next] = free + frame.latency_s;
    }
    return end;
  }

 private:
  const Wire& wire_;
  const bool whole_;
  TimedFrames made_;
  std::size_t before_ = 0;  ///< where the round before begins
};

/// Equal messages in place of many, which carry as much. REQUIRES: most <= kMostFrames.
std::vector<double> joined(const Part& part, std::size_t most) {
  if (part.count <= static_cast<double>(most)) return part.messages;
  const double headers = kHeaderBytes * (part.count - static_cast<double>(most));
  return std::vector<double>(most, (part.bytes + headers) / static_cast<double>(most));
}

/// Rounds of n ranks in which a part leaves once the part of the round before has arrived, message by message.
CollectiveTime rounds_of(const Wire& wire, std::size_t n, std::size_t rounds, const Part& part) {
  const double rate = wire.bytes_per_s();
  const double whole = part.framed / rate;
  const double all = static_cast<double>(wire.senders) * whole;  // a part of each sender
  const double latency = wire.latency_s(part.first);
  const double message = (part.first + kHeaderBytes) / rate;
  const double first = message + latency;
  const auto count = static_cast<double>(rounds);
  // Parts that take longer than the longest message's way leave without a gap; short ones wait for that way.
  const double alone = all >= first ? count * all + latency : count * first + all - message;
  const double sent = static_cast<double>(n) * count;
  CollectiveTime time{count * all, alone, sent * part.count, sent * part.bytes};
  constexpr std::size_t kFewMessages = 4;  // of a part: enough to keep the card busy between two rounds
  const std::size_t played = wire.senders * wire.lanes;
  const std::vector<double> messages =
      joined(part, std::max(kFewMessages, kMostFrames / std::max<std::size_t>(1, rounds * played)));
  const std::size_t most_rounds = std::max<std::size_t>(2, kMostFrames / (messages.size() * played));
  const std::size_t shown = std::min(rounds, most_rounds);
  FrameList frames(wire, false);
  for (std::size_t round = 0; round < shown; ++round) frames.add_round(messages, count / static_cast<double>(shown));
  const bool exact = shown == rounds && static_cast<double>(messages.size()) == part.count;
  time.frames = frames.take(exact ? 0 : alone - frames.alone_s());
  return time;
}

/// One message from each of n ranks to each of the others.
CollectiveTime direct(const Wire& wire, std::size_t n, const Part& part) {
  const auto others = static_cast<double>(n - 1);
  const std::size_t messages_of_all = (n - 1) * wire.senders;
  const double time = static_cast<double>(messages_of_all) * part.framed / wire.bytes_per_s();
  const double sent = static_cast<double>(n) * others;
  CollectiveTime all{time, time + wire.latency_s(part.first), sent * part.count, sent * part.bytes};
  Wire together = wire;
  together.senders = 1;
  FrameList frames(together, false);
  const bool all_lanes = wire.lanes > 1;  // then each message has a receiver of its own
  const std::vector<double> one =
      joined(part, all_lanes ? std::max<std::size_t>(1, kMostFrames / (messages_of_all * wire.lanes)) : kMostFrames);
  std::vector<double> messages;
  for (std::size_t other = 0; other < messages_of_all && (all_lanes || messages.size() < kMostFrames); ++other)
    messages.insert(messages.end(), one.begin(), one.end());
  frames.add_round(messages, static_cast<double>(messages_of_all * one.size()) / static_cast<double>(messages.size()));
  all.frames = frames.take(all.alone_s - frames.alone_s());
  return all;
}
CollectiveTime direct(const Wire& wire, std::size_t n, double part, double segment) {
  return direct(wire, n, part_of(std::span(&part, 1), segment));
}

/// A round in which `ranks` ranks send a message each.
struct Round {
  double bytes = 0;
  std::size_t ranks = 0;
};

/// Rounds in each of which all of a message leaves once all of the message before has arrived.
CollectiveTime whole_rounds(const Wire& wire, double segment, std::span<const Round> rounds) {
  CollectiveTime time;
  FrameList frames(wire, true);
  double later_s = 0;  // where messages were joined: the last one of a round is longer than the real one
  for (const auto& [bytes, ranks] : rounds) {
    const Part part = part_of(std::span(&bytes, 1), segment);
    time.occupies_s += static_cast<double>(wire.senders) * part.framed / wire.bytes_per_s();
    time.messages += static_cast<double>(ranks) * part.count;
    time.moved_bytes += static_cast<double>(ranks) * bytes;
    constexpr std::size_t kFewMessages = 16;
    const std::vector<double> messages = joined(part, std::max<std::size_t>(2, kFewMessages / wire.senders));
    later_s += wire.latency_s(part.last) - wire.latency_s(messages.back());
    frames.add_round(messages);
  }
  time.alone_s = frames.alone_s() + later_s;
  time.frames = frames.take(later_s);
  return time;
}

/// Rounds of vectors that halve; ranks that are not in the largest power of two join before, and leave after.
std::vector<Round> halving_doubling(std::size_t n, double bytes) {
  const std::size_t power = std::bit_floor(n);
  std::vector<Round> rounds;
  for (std::size_t ranks = power; ranks > 1; ranks /= 2)
    rounds.push_back({bytes / 2 * static_cast<double>(ranks) / static_cast<double>(power), power});
  for (std::size_t halved = rounds.size(); halved > 0; --halved) rounds.push_back(rounds[halved - 1]);
  if (power == n) return rounds;
  rounds.insert(rounds.begin(), {bytes, n - power});
  rounds.push_back({bytes, n - power});
  return rounds;
}

/// Rounds in which each rank sends the whole vector to one other.
std::vector<Round> doubling(std::size_t n, double bytes) {
  return std::vector<Round>(std::bit_width(n - 1) + (std::has_single_bit(n) ? 0U : 1U), {bytes, n});
}

/// All send to the root, and the root to all: its card.
CollectiveTime star(const Wire& wire, std::size_t n, double bytes, double segment) {
  const CollectiveTime in = direct(wire, n, bytes, segment);
  const auto all = static_cast<double>(n);
  return {in.occupies_s, 2 * in.alone_s, 2 * in.messages / all, 2 * in.moved_bytes / all};
}

}  // namespace

CollectiveTime all_reduce_time(const Wire& wire, std::size_t n, double bytes, const ring::Tuning::Row& algorithm) {
  if (n <= 1 || bytes <= 0) return {};
  const auto segment = static_cast<double>(algorithm.segment_bytes);
  if (algorithm.algorithm == ring::Algorithm::exchange) return direct(wire, n, bytes, segment);
  if (algorithm.algorithm == ring::Algorithm::halving_doubling)
    return whole_rounds(wire, segment, halving_doubling(n, bytes));
  if (algorithm.algorithm == ring::Algorithm::doubling) return whole_rounds(wire, segment, doubling(n, bytes));
  if (algorithm.algorithm == ring::Algorithm::star) return star(wire, n, bytes, segment);
  const double part = bytes / static_cast<double>(n);
  return rounds_of(wire, n, 2 * (n - 1), part_of(std::span(&part, 1), segment));
}

CollectiveTime scatter_time(const Wire& wire, std::size_t n, std::span<const double> units,
                            const ring::Tuning::Row& algorithm) {
  std::vector<double> pieces(units.begin(), units.end());
  for (double& piece : pieces) piece /= static_cast<double>(n);
  const Part part = part_of(pieces, static_cast<double>(algorithm.segment_bytes));
  if (n <= 1 || part.bytes <= 0) return {};
  return algorithm.algorithm.for_small_vectors ? direct(wire, n, part) : rounds_of(wire, n, n - 1, part);
}

namespace {

/// The messages, one after the other, by which a rank hears in a barrier (ring/plan/barrier.cpp) of the rank that is
/// `distance` before: of round k, if the distance has the bit k. A distance once round the ring counts, too.
double barrier_messages(std::size_t distance, std::size_t n) {
  const std::size_t all = std::bit_ceil(n) - 1;
  int most = 0;
  for (std::size_t way = distance; way <= all; way += n) most = std::max(most, std::popcount(way));
  return most;
}

}  // namespace

CollectiveTime barrier_time(const Wire& wire, std::size_t n) {
  if (n <= 1) return {};
  const double message = kHeaderBytes / wire.bytes_per_s() + wire.latency_s(0);
  auto frames = std::make_shared<TimedFrames>();
  for (std::size_t other = 1; other < n; ++other)
    frames->frames.push_back({.service_s = 0, .latency_s = barrier_messages(other, n) * message});
  frames->at_once = n - 1;
  const auto rounds = static_cast<double>(std::bit_width(n - 1));
  return {0, rounds * message, static_cast<double>(n) * rounds, 0, std::move(frames)};
}

CollectiveTime message_time(const Wire& wire, double bytes, double segment) {
  const Part part = part_of(std::span(&bytes, 1), segment);
  const double whole = part.framed / wire.bytes_per_s();
  return {whole, whole + wire.latency_s(part.last), part.count, bytes};
}

}  // namespace psring::bench
