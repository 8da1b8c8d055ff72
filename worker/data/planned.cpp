#include <psring/common/base/text/error.h>
#include <psring/worker/data/make_dataset.h>

namespace psring::worker {
namespace {

class PlannedData final : public Dataset {
 public:
  PlannedData(const DataNeeds& needs, std::size_t samples) : needs_(needs), samples_(samples) {}
  std::size_t size() const override { return samples_; }
  std::size_t input_cols() const override { return needs_.input_cols; }
  std::size_t targets_per_sample() const override { return needs_.targets ? needs_.rows_per_sample : 0; }
  std::size_t classes() const override { return needs_.classes; }
  bool tokens() const override { return needs_.tokens; }
  std::size_t target_values() const override { return needs_.target_values; }
  void read(std::size_t /*index*/, const SampleMemory& /*to*/) const override {
    fail(ErrorKind::bug, "planned data has no samples");
  }

 private:
  const DataNeeds needs_;
  const std::size_t samples_;
};

}  // namespace

DataSplit make_planned_data(const DataNeeds& needs, std::size_t samples) {
  return {std::make_unique<PlannedData>(needs, samples), nullptr};
}

}  // namespace psring::worker
