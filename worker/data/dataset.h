#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace psring::worker {

/// Samples of equal shape, readable in any order, from any thread.
class Dataset {
 public:
  virtual ~Dataset() = default;
  virtual std::size_t size() const = 0;
  /// Floats of one sample's input: pixels in [0, 1], or a context's token ids as floats (exact below 2^24).
  virtual std::size_t input_cols() const = 0;
  /// Targets of one sample: 1, or the context's length; 0 where there are none.
  virtual std::size_t targets_per_sample() const = 0;
  /// Classes, or the vocabulary.
  virtual std::size_t classes() const = 0;
  virtual bool tokens() const = 0;
  /// Writes input_cols() floats and targets_per_sample() classes.
  virtual void read(std::size_t index, std::span<float> input, std::span<std::int32_t> targets) const = 0;
};

/// What `--data` names: `test` may be null (then there is no evaluation).
struct DataSplit {
  std::unique_ptr<Dataset> train;
  std::unique_ptr<Dataset> test;
};

}  // namespace psring::worker
