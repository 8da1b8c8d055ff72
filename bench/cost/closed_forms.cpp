#include <algorithm>
#include <cmath>

#include <psring/bench/cost/closed_forms.h>

namespace psring::bench {
namespace {

double rate_of(const net::LinkSpec& link) { return link.bits_per_second / 8; }

/// Bytes on the wire of a message of `bytes` in segments, headers counted.
double framed(double bytes, double segment) {
  return bytes + kHeaderBytes * std::max(1.0, std::ceil(bytes / segment - 1e-9));
}

/// Rounds in which a part leaves once the part of the round before has arrived, segment by segment.
CollectiveTime rounds_of(const net::LinkSpec& link, double rounds, double part, double segment) {
  const double rate = rate_of(link);
  const double whole = framed(part, segment) / rate;
  const double first = framed(std::min(part, segment), segment) / rate + seconds(link.delay);
  // A part that takes longer than its first segment's way leaves without a gap; a short one waits for that way.
  const double hides = whole >= first ? seconds(link.delay) : 0;
  return {rounds * part, rounds * whole, rounds * std::max(whole, first) + hides};
}

/// One message to each of the others, and one from each.
CollectiveTime direct(const net::LinkSpec& link, double others, double part, double segment) {
  const double time = others * framed(part, segment) / rate_of(link);
  return {others * part, time, time + seconds(link.delay)};
}

double log2_rounds(std::size_t n) { return std::ceil(std::log2(static_cast<double>(n)) - 1e-9); }

/// Rounds of vectors that halve; ranks that are not in the largest power of two join before, and leave after.
CollectiveTime halving_doubling(const net::LinkSpec& link, std::size_t n, double bytes, double segment) {
  CollectiveTime sum;
  const auto power = static_cast<std::size_t>(std::pow(2.0, std::floor(std::log2(static_cast<double>(n)) + 1e-9)));
  const auto add = [&](double part) {
    const CollectiveTime round = rounds_of(link, 1, part, segment);
    sum.bytes += part;
    sum.occupies_s += round.occupies_s;
    sum.alone_s += round.occupies_s + seconds(link.delay);
  };
  if (power != n) add(bytes);
  for (std::size_t ranks = power; ranks > 1; ranks /= 2)
    add(bytes / 2 * static_cast<double>(ranks) / static_cast<double>(power));
  for (std::size_t ranks = 2; ranks <= power; ranks *= 2)
    add(bytes / 2 * static_cast<double>(ranks) / static_cast<double>(power));
  if (power != n) add(bytes);
  return sum;
}

}  // namespace

CollectiveTime all_reduce_time(const net::LinkSpec& link, std::size_t n, double bytes,
                               const ring::Tuning::Row& algorithm) {
  if (n <= 1 || bytes <= 0) return {};
  const auto segment = static_cast<double>(algorithm.segment_bytes);
  const auto others = static_cast<double>(n - 1);
  if (algorithm.algorithm == ring::Algorithm::exchange) return direct(link, others, bytes, segment);
  if (algorithm.algorithm == ring::Algorithm::halving_doubling) return halving_doubling(link, n, bytes, segment);
  if (algorithm.algorithm == ring::Algorithm::doubling) {
    const CollectiveTime one = direct(link, 1, bytes, segment);
    const double rounds = log2_rounds(n) + (std::exp2(log2_rounds(n)) == static_cast<double>(n) ? 0 : 1);
    return {rounds * bytes, rounds * one.occupies_s, rounds * one.alone_s};
  }
  if (algorithm.algorithm == ring::Algorithm::star) {  // the root's card
    const CollectiveTime in = direct(link, others, bytes, segment);
    return {in.bytes, in.occupies_s, 2 * in.alone_s};
  }
  return rounds_of(link, 2 * others, bytes / static_cast<double>(n), segment);
}

CollectiveTime scatter_time(const net::LinkSpec& link, std::size_t n, double bytes,
                            const ring::Tuning::Row& algorithm) {
  if (n <= 1 || bytes <= 0) return {};
  const auto others = static_cast<double>(n - 1);
  const double part = bytes / static_cast<double>(n);
  const auto segment = static_cast<double>(algorithm.segment_bytes);
  return algorithm.algorithm.for_small_vectors ? direct(link, others, part, segment)
                                               : rounds_of(link, others, part, segment);
}

double server_exchange_s(const net::LinkSpec& link, std::size_t n, std::size_t servers, double gradient_bytes,
                         double parameter_bytes) {
  const double fan = std::max(1.0, static_cast<double>(n) / static_cast<double>(servers));
  return fan * (gradient_bytes + parameter_bytes) / rate_of(link) + 2 * seconds(link.delay);
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

namespace {

/// The quantile of the standard normal distribution, by bisection of erfc.
double normal_quantile(double p) {
  double low = -40;
  double high = 40;
  for (int i = 0; i < 100; ++i) {
    const double middle = (low + high) / 2;
    (std::erfc(-middle / std::sqrt(2.0)) / 2 < p ? low : high) = middle;
  }
  return (low + high) / 2;
}

}  // namespace

double expected_slowest(std::size_t n, double deviation) {
  if (n <= 1 || deviation <= 0) return 1;
  constexpr double kBlom = 0.375;
  const auto count = static_cast<double>(n);
  return 1 + deviation * normal_quantile((count - kBlom) / (count - 2 * kBlom + 1));
}

}  // namespace psring::bench
