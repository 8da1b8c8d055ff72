#include <algorithm>
#include <utility>

#include <psring/common/base/text/error.h>
#include <psring/worker/data/keyed/every_tenth.h>

namespace psring::worker {
namespace {

constexpr std::size_t kGroups = 10;

class EveryTenth final : public Dataset {
 public:
  EveryTenth(std::shared_ptr<const Dataset> all, std::size_t group, bool test)
      : all_(std::move(all)), group_(group), test_(test) {
    const std::size_t rounds = all_->size() / (kGroups * group_);
    const std::size_t rest = all_->size() % (kGroups * group_);
    const std::size_t trained = (kGroups - 1) * group_;
    size_ =
        test_ ? rounds * group_ + (rest > trained ? rest - trained : 0) : rounds * trained + std::min(rest, trained);
  }

  std::size_t size() const override { return size_; }
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
  /// The number of a sample in the whole data set.
  std::size_t place(std::size_t index) const {
    check(index < size_, "read of sample {} of {}", index, size_);
    const std::size_t of_round = test_ ? group_ : (kGroups - 1) * group_;
    const std::size_t first = test_ ? (kGroups - 1) * group_ : 0;
    return index / of_round * kGroups * group_ + first + index % of_round;
  }

  const std::shared_ptr<const Dataset> all_;  ///< shared by both splits
  const std::size_t group_;
  const bool test_;
  std::size_t size_ = 0;
};

}  // namespace

DataSplit every_tenth(std::shared_ptr<const Dataset> all, std::size_t group, const std::string& source) {
  if (all->size() < kGroups * group)
    fail(ErrorKind::data, "{}: {} samples, at least {} expected, as a tenth of them is the test set", source,
         all->size(), kGroups * group);
  return {std::make_unique<EveryTenth>(all, group, false), std::make_unique<EveryTenth>(all, group, true)};
}

}  // namespace psring::worker
