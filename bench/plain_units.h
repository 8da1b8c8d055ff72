#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <psring/bench/exchange/exchange.h>
#include <psring/common/base/text/error.h>
#include <psring/common/device/buffer.h>
#include <psring/optim/optimizer.h>

namespace psring::bench {

/// The header that the baselines send in front of a payload.
struct PlainHeader {
  enum Operation : std::uint32_t { push, pull, push_pull };
  std::uint32_t operation = push;
  std::uint32_t unit = 0;
  std::uint64_t begin = 0;  ///< elements
  std::uint64_t end = 0;
};

/// Vectors of the baselines, in memory like psring's: mapped once, with huge pages if available.
class PlainUnits {
 public:
  PlainUnits(const std::vector<std::size_t>& elements, float start) {
    for (const std::size_t size : elements) {
      buffers_.emplace_back(size * sizeof(float), Category::parameters, ledger_);
      for (float& value : buffers_.back().as<float>()) value = start;
    }
  }

  std::span<float> operator[](std::size_t unit) { return buffers_[unit].as<float>(); }
  /// Throws protocol if the part does not exist.
  std::span<float> part(const PlainHeader& header) {
    if (header.unit >= buffers_.size() || header.begin > header.end || header.end > (*this)[header.unit].size())
      fail(ErrorKind::protocol, "no such part of a vector");
    return (*this)[header.unit].subspan(header.begin, header.end - header.begin);
  }

 private:
  MemoryLedger ledger_;
  std::vector<Buffer> buffers_;
};

}  // namespace psring::bench
