#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include <psring/bench/predict/stations.h>
#include <psring/common/net/frame.h>
#include <psring/common/net/link_shaping.h>
#include <psring/ring/plan/tuning.h>

namespace psring::bench {

/// Pure formulas: times in seconds, sizes in bytes. docs/formulas.md derives each of them.

/// Bytes that precede each frame's payload.
inline constexpr double kHeaderBytes = net::kHeaderBytes;

/// A link, and the time that programs and kernels add to a message's way.
struct Wire {
  Wire(const net::LinkSpec& of) : link(of) {}  // a link whose ends take no time
  Wire(const net::LinkSpec& of, double each_s, double byte_s, std::size_t all_senders = 1)
      : link(of), hop_s(each_s), hop_s_per_byte(byte_s), senders(all_senders) {}

  net::LinkSpec link;
  double hop_s = 0;
  double hop_s_per_byte = 0;
  /// Processes of a host that share the link, and make the same call in groups of their own at the same time: their
  /// messages leave one after the other.
  std::size_t senders = 1;
  std::size_t lanes = 1;  ///< the number of workers whose messages are played: each has fewer and larger ones

  double bytes_per_s() const { return link.bits_per_second / 8; }
  /// The time from the moment at which a message could leave until it can be used, without the time on the card.
  double latency_s(double bytes) const { return seconds(link.delay) + hop_s + bytes * hop_s_per_byte; }
};

/// A collective at one rank: how long it occupies the card in each direction, and how long it takes if nothing else
/// uses the card. And the messages of all ranks together, for the processors' work.
struct CollectiveTime {
  double occupies_s = 0;  ///< by the messages of all senders, as alone_s is until the last one has all
  double alone_s = 0;
  double messages = 0;     ///< that all ranks send
  double moved_bytes = 0;  ///< payload that all ranks send
  /// The messages of one rank, or of all senders; null if ranks send different ones. At most some hundred: longer
  /// collectives have fewer and larger ones, which take as long if nothing else uses the card.
  std::shared_ptr<const TimedFrames> frames = nullptr;
};

/// An all-reduce of a vector among n ranks with one card each, by an algorithm of ring/plan in messages of a segment.
CollectiveTime all_reduce_time(const Wire& wire, std::size_t n, double bytes, const ring::Tuning::Row& algorithm);
/// A reduce-scatter or an all-gather: half of the ring, or one message to each rank if the algorithm is one for small
/// vectors. `units`: the bytes of the vector's units. Each is cut among all ranks, and messages hold one unit each.
CollectiveTime scatter_time(const Wire& wire, std::size_t n, std::span<const double> units,
                            const ring::Tuning::Row& algorithm);

/// A barrier among n ranks: ceil(log2 n) rounds of messages without payload.
CollectiveTime barrier_time(const Wire& wire, std::size_t n);

/// A message from one rank to another.
CollectiveTime message_time(const Wire& wire, double bytes, double segment);

}  // namespace psring::bench
