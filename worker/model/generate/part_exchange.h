#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include <psring/worker/model/parallel/tensor_part.h>

namespace psring::worker {

/// Rows of floats.
struct FloatRows {
  const float* data = nullptr;
  std::size_t stride = 0;
};

/// Exchanges results between the ranks of a divided GPT: a rank computes some columns of a result, and gets the columns
/// of the others. Values pass through the part's memory. All ranks make the same calls in the same order. REQUIRES: the
/// part is connected, with the memory that `memory_bytes` returns.
class PartExchange {
 public:
  explicit PartExchange(const TensorPart& part) : part_(part) {}

  /// Returns the bytes of a part's memory, if at most `rows` rows have up to `columns` columns, and single rows up to
  /// `widest`.
  static std::size_t memory_bytes(std::size_t rows, std::size_t columns, std::size_t widest);

  bool whole() const { return part_.whole(); }
  /// Collects the columns of `rows` rows in `to` [rows, units * unit]: rank r has the columns of units part.of(units).
  void gather(std::size_t rows, FloatRows own, std::size_t units, std::size_t unit, float* to);
  /// Collects whole rows: rank owners[i] has row i in `x` [owners.size(), columns], and all get it.
  void share_rows(std::span<const std::uint32_t> owners, std::size_t columns, float* x);
  /// Payload bytes that this rank has received from others so far.
  std::uint64_t received_bytes() const { return received_; }

 private:
  void gather_some(std::size_t rows, FloatRows own, std::size_t units, std::size_t unit, float* to);
  std::span<float> memory(std::size_t floats) const;

  TensorPart part_;
  std::uint64_t received_ = 0;
};

}  // namespace psring::worker
