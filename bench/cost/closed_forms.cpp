#include <algorithm>
#include <cmath>
#include <vector>

#include <psring/bench/cost/closed_forms.h>

namespace psring::bench {
namespace {

double segments_of(double bytes, double segment) { return std::max(1.0, std::ceil(bytes / segment - 1e-9)); }

/// Bytes on the wire of a message of `bytes` in segments, headers counted.
double framed(double bytes, double segment) { return bytes + kHeaderBytes * segments_of(bytes, segment); }

/// A part of a vector: what one message each round carries, unless it is longer than a segment.
struct Part {
  double bytes = 0;
  double framed = 0;  ///< bytes on the wire, with headers
  double first = 0;   ///< bytes of the longest message
  double messages = 0;
};

Part part_of(std::span<const double> pieces, double segment) {
  Part part;
  for (const double piece : pieces) {
    part.bytes += piece;
    part.framed += framed(piece, segment);
    part.first = std::max(part.first, std::min(piece, segment));
    part.messages += segments_of(piece, segment);
  }
  return part;
}

/// A collective that keeps its card busy for less than this share of its time leaves gaps that others can fill.
constexpr double kBusy = 0.8;

/// Rounds of n ranks in which a part leaves once the part of the round before has arrived, message by message.
CollectiveTime rounds_of(const Wire& wire, std::size_t n, double rounds, const Part& part) {
  const double rate = wire.bytes_per_s();
  const double whole = part.framed / rate;
  const double latency = wire.latency_s(part.first);
  const double first = (part.first + kHeaderBytes) / rate + latency;
  // A part that takes longer than its longest message's way leaves without a gap; a short one waits for that way.
  const double hides = whole >= first ? latency : 0;
  const double sent = static_cast<double>(n) * rounds;
  return {rounds * part.bytes,  rounds * whole,    rounds * std::max(whole, first) + hides,
          sent * part.messages, sent * part.bytes, rounds > 2 && whole < kBusy * first};
}
CollectiveTime rounds_of(const Wire& wire, std::size_t n, double rounds, double part, double segment) {
  return rounds_of(wire, n, rounds, part_of(std::span(&part, 1), segment));
}

/// One message from each of n ranks to each of the others.
CollectiveTime direct(const Wire& wire, std::size_t n, const Part& part) {
  const auto others = static_cast<double>(n - 1);
  const double time = others * part.framed / wire.bytes_per_s();
  const double sent = static_cast<double>(n) * others;
  return {others * part.bytes, time, time + wire.latency_s(part.first), sent * part.messages, sent * part.bytes};
}
CollectiveTime direct(const Wire& wire, std::size_t n, double part, double segment) {
  return direct(wire, n, part_of(std::span(&part, 1), segment));
}

double log2_rounds(std::size_t n) { return std::ceil(std::log2(static_cast<double>(n)) - 1e-9); }

/// Rounds of vectors that halve; ranks that are not in the largest power of two join before, and leave after.
CollectiveTime halving_doubling(const Wire& wire, std::size_t n, double bytes, double segment) {
  CollectiveTime sum;
  const auto power = static_cast<std::size_t>(std::pow(2.0, std::floor(std::log2(static_cast<double>(n)) + 1e-9)));
  const auto add = [&](double part, std::size_t senders) {
    const CollectiveTime round = rounds_of(wire, senders, 1, part, segment);
    sum.bytes += part;
    sum.occupies_s += round.occupies_s;
    sum.alone_s += round.occupies_s + wire.latency_s(std::min(part, segment));
    sum.messages += round.messages;
    sum.moved_bytes += round.moved_bytes;
  };
  if (power != n) add(bytes, n - power);
  for (std::size_t ranks = power; ranks > 1; ranks /= 2)
    add(bytes / 2 * static_cast<double>(ranks) / static_cast<double>(power), power);
  for (std::size_t ranks = 2; ranks <= power; ranks *= 2)
    add(bytes / 2 * static_cast<double>(ranks) / static_cast<double>(power), power);
  if (power != n) add(bytes, n - power);
  return sum;
}

/// Rounds in which each rank sends the whole vector to one other.
CollectiveTime doubling(const Wire& wire, std::size_t n, double bytes, double segment) {
  const CollectiveTime one = rounds_of(wire, n, 1, bytes, segment);
  const double rounds = log2_rounds(n) + (std::exp2(log2_rounds(n)) == static_cast<double>(n) ? 0 : 1);
  const double alone = one.occupies_s + wire.latency_s(std::min(bytes, segment));
  return {rounds * bytes, rounds * one.occupies_s, rounds * alone, rounds * one.messages, rounds * one.moved_bytes};
}

/// All send to the root, and the root to all: its card.
CollectiveTime star(const Wire& wire, std::size_t n, double bytes, double segment) {
  const CollectiveTime in = direct(wire, n, bytes, segment);
  const auto all = static_cast<double>(n);
  return {in.bytes, in.occupies_s, 2 * in.alone_s, 2 * in.messages / all, 2 * in.moved_bytes / all};
}

}  // namespace

CollectiveTime all_reduce_time(const Wire& wire, std::size_t n, double bytes, const ring::Tuning::Row& algorithm) {
  if (n <= 1 || bytes <= 0) return {};
  const auto segment = static_cast<double>(algorithm.segment_bytes);
  if (algorithm.algorithm == ring::Algorithm::exchange) return direct(wire, n, bytes, segment);
  if (algorithm.algorithm == ring::Algorithm::halving_doubling) return halving_doubling(wire, n, bytes, segment);
  if (algorithm.algorithm == ring::Algorithm::doubling) return doubling(wire, n, bytes, segment);
  if (algorithm.algorithm == ring::Algorithm::star) return star(wire, n, bytes, segment);
  return rounds_of(wire, n, 2 * static_cast<double>(n - 1), bytes / static_cast<double>(n), segment);
}

CollectiveTime scatter_time(const Wire& wire, std::size_t n, std::span<const double> units,
                            const ring::Tuning::Row& algorithm) {
  std::vector<double> pieces(units.begin(), units.end());
  for (double& piece : pieces) piece /= static_cast<double>(n);
  const Part part = part_of(pieces, static_cast<double>(algorithm.segment_bytes));
  if (n <= 1 || part.bytes <= 0) return {};
  return algorithm.algorithm.for_small_vectors ? direct(wire, n, part)
                                               : rounds_of(wire, n, static_cast<double>(n - 1), part);
}

double byteps_optimum_s(double n, double k, double bytes, double bytes_per_s) {
  return 2 * n * (n - 1) * bytes / ((n * n + k * n - 2 * k) * bytes_per_s);
}

BytePsShares byteps_shares(double n, double k) {
  const double whole = n * n + k * n - 2 * k;
  return {2 * (n - 1) / whole, (n - k) / whole};
}

double ring_bound_s(double n, double bytes, double bytes_per_s) { return 2 * (n - 1) / n * bytes / bytes_per_s; }

double server_bound_s(double n, double s, double bytes, double bytes_per_s) {
  return std::max(1.0, n / s) * bytes / bytes_per_s;
}

double hybrid_bytes_per_host(double hosts, double gradient_bytes) { return 2 * (hosts - 1) / hosts * gradient_bytes; }

double full_sharding_bytes_per_host(double hosts, double gradient_bytes, double parameter_bytes, double gathers) {
  return (hosts - 1) / hosts * (gradient_bytes + gathers * parameter_bytes);
}

}  // namespace psring::bench
