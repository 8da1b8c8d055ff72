#include <utility>

#include <psring/common/base/text/error.h>
#include <psring/worker/data/first_samples.h>

namespace psring::worker {
namespace {

class FirstSamples final : public Dataset {
 public:
  FirstSamples(std::unique_ptr<Dataset> all, std::size_t count) : all_(std::move(all)), count_(count) {
    check(count_ <= all_->size(), "the first {} of {} samples", count_, all_->size());
  }

  std::size_t size() const override { return count_; }
  std::size_t input_cols() const override { return all_->input_cols(); }
  std::size_t targets_per_sample() const override { return all_->targets_per_sample(); }
  std::size_t classes() const override { return all_->classes(); }
  bool tokens() const override { return all_->tokens(); }
  std::size_t target_values() const override { return all_->target_values(); }
  void read(std::size_t index, const SampleMemory& to) const override {
    check(index < count_, "read of sample {} of {}", index, count_);
    all_->read(index, to);
  }
  std::vector<KeyField> key_fields() const override { return all_->key_fields(); }
  void read_keys(std::size_t index, std::vector<std::uint64_t>& keys, std::span<std::uint32_t> counts) const override {
    check(index < count_, "read of sample {} of {}", index, count_);
    all_->read_keys(index, keys, counts);
  }

 private:
  const std::unique_ptr<Dataset> all_;
  const std::size_t count_;
};

}  // namespace

std::unique_ptr<Dataset> first_samples(std::unique_ptr<Dataset> data, std::size_t count) {
  return std::make_unique<FirstSamples>(std::move(data), count);
}

}  // namespace psring::worker
