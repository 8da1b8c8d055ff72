#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include <psring/worker/data/dataset.h>

namespace psring::worker::test {

/// A data set with the given keys: by sample, by field.
class KeyedData final : public Dataset {
 public:
  using Samples = std::vector<std::vector<std::vector<std::uint64_t>>>;
  KeyedData(Samples samples, std::vector<KeyField> fields) : samples_(std::move(samples)), fields_(std::move(fields)) {}
  std::size_t size() const override { return samples_.size(); }
  std::size_t input_cols() const override { return 1; }
  std::size_t targets_per_sample() const override { return 1; }
  std::size_t classes() const override { return 2; }
  void read(std::size_t /*index*/, const SampleMemory& /*to*/) const override {}
  std::vector<KeyField> key_fields() const override { return fields_; }
  void read_keys(std::size_t index, std::vector<std::uint64_t>& keys, std::span<std::uint32_t> counts) const override {
    for (std::size_t field = 0; field < fields_.size(); ++field) {
      const auto& own = samples_[index][field];
      keys.insert(keys.end(), own.begin(), own.end());
      counts[field] = static_cast<std::uint32_t>(own.size());
    }
  }

 private:
  Samples samples_;
  std::vector<KeyField> fields_;
};

}  // namespace psring::worker::test
