#include <algorithm>
#include <bit>
#include <ctime>

#include <psring/bench/rows/row_way.h>
#include <psring/common/base/clock.h>
#include <psring/optim/rows/row_hash.h>

namespace psring::bench {

RowRun run_batches(RowWay& way, DrawnBatches& batches, Range numbers, bool check) {
  const SystemClock clock;
  const std::size_t width = batches.which().width;
  RowRun run;
  for (std::size_t number = numbers.begin; number < numbers.end; ++number) {
    const RowBatch& batch = batches[number];
    const std::size_t keys = batch.keys.size();
    std::ranges::copy(batch.keys, way.keys().begin());
    write_gradients(batch.keys, width, way.gradients());
    way.show(batch.rows);
    double cpu = way.cpu_s();
    const Moment start = clock.now();
    way.pull(keys);
    const Moment pulled = clock.now();
    cpu -= way.cpu_s();
    if (check)
      for (const float value : way.rows().first(keys * width))
        run.checksum = (run.checksum ^ std::bit_cast<std::uint32_t>(value)) * 0x100000001B3U;
    cpu += way.cpu_s();
    const Moment pushes = clock.now();
    way.push(keys);
    const Moment pushed = clock.now();
    run.times.push_back({seconds(pulled - start), seconds(pushed - pushes), way.cpu_s() - cpu});
  }
  return run;
}

double RowWay::cpu_of(int process) {
  clockid_t id = CLOCK_PROCESS_CPUTIME_ID;
  if (process != 0) ::clock_getcpuclockid(process, &id);
  timespec time{};
  ::clock_gettime(id, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

namespace {

class ReferenceRows final : public RowWay {
 public:
  explicit ReferenceRows(const RowCase& which)
      : width_(which.width),
        values_(which.rows * which.width),
        state_(which.rows),
        keys_(which.lookups),
        gradients_(which.lookups * which.width),
        rows_(gradients_.size()) {}

  std::span<std::uint64_t> keys() override { return keys_; }
  std::span<float> gradients() override { return gradients_; }
  std::span<const float> rows() const override { return rows_; }
  void pull(std::size_t keys) override {
    for (std::size_t i = 0; i < keys; ++i)
      std::copy_n(values_.data() + row(i) * width_, width_, rows_.data() + i * width_);
  }
  void push(std::size_t keys) override {
    for (std::size_t i = 0; i < keys; ++i)
      update_row(width_, values_.data() + row(i) * width_, state_[row(i)], gradients_.data() + i * width_);
  }

 private:
  std::size_t row(std::size_t i) const { return optim::unmix64(keys_[i]) - 1; }

  const std::size_t width_;
  std::vector<float> values_;
  std::vector<float> state_;
  std::vector<std::uint64_t> keys_;
  std::vector<float> gradients_;
  std::vector<float> rows_;
};

}  // namespace

std::unique_ptr<RowWay> make_reference_rows(const RowCase& which) { return std::make_unique<ReferenceRows>(which); }

}  // namespace psring::bench
