#pragma once

#include <algorithm>
#include <array>
#include <cstddef>

namespace psring::bench {

/// One moment of each of some workers of a host, which act alike but not at the same times. In seconds.
class Moments {
 public:
  static constexpr std::size_t kMost = 16;

  Moments() = default;
  /// The same moment for all.
  Moments(double at, std::size_t lanes) : lanes_(lanes) { at_.fill(at); }

  std::size_t lanes() const { return lanes_; }
  double operator[](std::size_t lane) const { return at_[lane]; }
  double& operator[](std::size_t lane) { return at_[lane]; }
  double last() const { return *std::max_element(at_.begin(), at_.begin() + static_cast<std::ptrdiff_t>(lanes_)); }
  Moments& operator+=(double seconds) {
    for (std::size_t lane = 0; lane < lanes_; ++lane) at_[lane] += seconds;
    return *this;
  }
  friend Moments operator+(Moments moments, double seconds) { return moments += seconds; }
  /// The later moment of each worker.
  friend Moments later(Moments a, const Moments& b) {
    for (std::size_t lane = 0; lane < a.lanes_; ++lane) a.at_[lane] = std::max(a.at_[lane], b.at_[lane]);
    return a;
  }

 private:
  std::array<double, kMost> at_{};
  std::size_t lanes_ = 1;
};

}  // namespace psring::bench
