#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace psring::worker {

/// Memory for one sample, which Dataset::read fills.
struct SampleMemory {
  std::span<float> input;           ///< input_cols() values
  std::span<std::int32_t> classes;  ///< targets_per_sample() classes
  std::span<float> values = {};     ///< target_values() real numbers
};

/// A feature whose values are 64-bit keys, such as a user's number.
struct KeyField {
  std::string name;
  std::size_t most = 1;  ///< keys of one sample
};

/// Samples of equal shape, which any thread can read in any order.
class Dataset {
 public:
  virtual ~Dataset() = default;
  virtual std::size_t size() const = 0;
  /// The floats of one sample's input: pixels in [0, 1], or the token ids of a context as floats (exact below 2^24).
  virtual std::size_t input_cols() const { return 0; }
  /// The classes that are the targets of one sample: 1, or the context's length; 0 without classes.
  virtual std::size_t targets_per_sample() const { return 0; }
  /// The number of classes, or the size of the vocabulary.
  virtual std::size_t classes() const { return 0; }
  virtual bool tokens() const { return false; }
  /// The real numbers that are the targets of one sample; 0 if targets are classes.
  virtual std::size_t target_values() const { return 0; }
  /// Writes a sample's input and targets.
  virtual void read(std::size_t index, const SampleMemory& to) const = 0;
  /// The features that are keys; they are read by themselves.
  virtual std::vector<KeyField> key_fields() const { return {}; }
  /// Appends a sample's keys to `keys`, field by field, and writes the number of each field's keys to `counts`.
  /// REQUIRES: counts.size() is the number of key fields.
  virtual void read_keys(std::size_t /*index*/, std::vector<std::uint64_t>& /*keys*/,
                         std::span<std::uint32_t> /*counts*/) const {}
};

/// The data of `--data`. `test` may be null; then there is no evaluation.
struct DataSplit {
  std::unique_ptr<Dataset> train;
  std::unique_ptr<Dataset> test;
  /// Returns a line that is another one for other data (fingerprint.h), which checkpoints hold. Called while both
  /// splits live. Null: not known, and a run that continues is not checked.
  std::function<std::string()> fingerprint = {};
  /// A line that differs between tokenizers; "": not known, or the data has no tokenizer.
  std::string tokenizer = {};
  /// Returns a line about the best result that any model can have on the test set. Null: not known. Called while both
  /// splits live.
  std::function<std::string()> best = {};
};

}  // namespace psring::worker
