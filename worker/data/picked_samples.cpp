#include <utility>

#include <psring/common/base/text/error.h>
#include <psring/worker/data/picked_samples.h>

namespace psring::worker {
namespace {

class PickedSamples final : public Dataset {
 public:
  PickedSamples(std::shared_ptr<const Dataset> all, std::size_t count, std::function<std::size_t(std::size_t)> place)
      : all_(std::move(all)), count_(count), place_(std::move(place)) {}

  std::size_t size() const override { return count_; }
  std::size_t input_cols() const override { return all_->input_cols(); }
  std::size_t targets_per_sample() const override { return all_->targets_per_sample(); }
  std::size_t classes() const override { return all_->classes(); }
  bool tokens() const override { return all_->tokens(); }
  std::size_t target_values() const override { return all_->target_values(); }
  void read(std::size_t index, const SampleMemory& to) const override { all_->read(place(index), to); }
  std::vector<KeyField> key_fields() const override { return all_->key_fields(); }
  void read_keys(std::size_t index, std::vector<std::uint64_t>& keys, std::span<std::uint32_t> counts) const override {
    all_->read_keys(place(index), keys, counts);
  }

 private:
  std::size_t place(std::size_t index) const {
    check(index < count_, "read of sample {} of {}", index, count_);
    return place_(index);
  }

  const std::shared_ptr<const Dataset> all_;  ///< shared by several splits
  const std::size_t count_;
  const std::function<std::size_t(std::size_t)> place_;
};

}  // namespace

std::unique_ptr<Dataset> picked_samples(std::shared_ptr<const Dataset> all, std::size_t count,
                                        std::function<std::size_t(std::size_t)> place) {
  return std::make_unique<PickedSamples>(std::move(all), count, std::move(place));
}

std::unique_ptr<Dataset> first_samples(std::unique_ptr<Dataset> data, std::size_t count) {
  check(count <= data->size(), "the first {} of {} samples", count, data->size());
  return picked_samples(std::move(data), count, [](std::size_t index) { return index; });
}

}  // namespace psring::worker
