#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <psring/common/base/range.h>

namespace psring::bench {

/// A table of `psring-bench rows`, and the batches that are read from it. Row k, from 0, has the key k + 1; the
/// probability of a key in a lookup is proportional to the integral of x^-zipf from the key to the next one.
struct RowCase {
  std::size_t rows = 0;
  std::size_t width = 0;
  std::size_t lookups = 0;  ///< of a batch; its different keys are fewer
  double zipf = 1.05;
};

/// The different keys of a batch, hashed, ascending, and their rows.
struct RowBatch {
  std::vector<std::uint64_t> keys;
  std::vector<std::uint32_t> rows;
};

/// The batches of a case, the same in each process. The first `loading()` batches have every key once, `lookups` keys
/// each; the batches behind them are drawn from the distribution, and repeat after kDrawn batches.
class DrawnBatches {
 public:
  static constexpr std::size_t kDrawn = 64;

  explicit DrawnBatches(const RowCase& which);

  const RowCase& which() const { return which_; }
  std::size_t loading() const { return (which_.rows + which_.lookups - 1) / which_.lookups; }
  /// Valid until the next call for a batch of loading.
  const RowBatch& operator[](std::size_t number);
  /// The mean number of keys in a drawn batch.
  double mean_keys() const;

 private:
  RowBatch make(std::size_t number) const;

  const RowCase which_;
  std::vector<RowBatch> drawn_;
  RowBatch loaded_;
};

/// Writes the gradients [keys, width] of some rows: a function of key and column.
void write_gradients(std::span<const std::uint64_t> keys, std::size_t width, std::span<float> out);

/// Applies rowwise-adagrad (optim/rows/row_rule.h), written out, to one row.
void update_row(std::size_t width, float* values, float& state, const float* gradient);

}  // namespace psring::bench
