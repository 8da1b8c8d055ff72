#include <algorithm>
#include <atomic>
#include <cstring>
#include <functional>
#include <thread>

#include <absl/container/flat_hash_map.h>

#include <psring/bench/rows/row_way.h>
#include <psring/common/device/mapping.h>
#include <psring/optim/rows/record_memory.h>

namespace psring::bench {
namespace {

constexpr std::size_t kAhead = 16;
constexpr std::size_t kLine = 64;

/// Keys are hashed already.
struct Identity {
  std::size_t operator()(std::uint64_t key) const { return key; }
};

/// A thread that works for another one, which waits for it. Memory order: who hands the turn over releases what it
/// wrote.
class Owner {
 public:
  ~Owner() {
    work_ = nullptr;
    hand_over(1);
  }
  void run(const std::function<void()>& work) {
    work_ = &work;
    hand_over(1);
    for (int turn = 1; turn == 1; turn = turn_.load(std::memory_order_acquire))
      turn_.wait(1, std::memory_order_acquire);
  }

 private:
  void hand_over(int turn) {
    turn_.store(turn, std::memory_order_release);
    turn_.notify_one();
  }
  void serve() {
    for (;;) {
      turn_.wait(0, std::memory_order_acquire);
      if (work_ == nullptr) return;
      (*work_)();
      hand_over(0);
    }
  }

  const std::function<void()>* work_ = nullptr;
  std::atomic<int> turn_{0};  ///< 1: the thread's
  std::jthread thread_{[this] { serve(); }};
};

}  // namespace

/// Records of the size that psring has, and one index of them.
struct RowFloors::Records {
  explicit Records(const RowCase& which)
      : width(which.width),
        most_keys(which.lookups),
        stride(optim::RecordMemory::Sizes{.values = which.width, .state = 1}.stride()),
        memory(which.rows * stride) {
    index.reserve(which.rows);
  }
  float* record(std::uint32_t row) const {
    return reinterpret_cast<float*>(memory.data() + row * stride + sizeof(optim::RecordHeader));
  }
  void prefetch(std::uint32_t row) const {
    const std::byte* const at = memory.data() + row * stride;
    for (std::size_t line = 0; line < stride; line += kLine) __builtin_prefetch(at + line, 1);
  }

  const std::size_t width;
  const std::size_t most_keys;
  const std::size_t stride;
  Mapping memory;
  absl::flat_hash_map<std::uint64_t, std::uint32_t, Identity> index;
};

namespace {

template <class Records>
class FloorRows final : public RowWay {
 public:
  FloorRows(Records& records, bool index)
      : records_(records),
        index_(index),
        keys_(records.most_keys),
        owners_keys_(records.most_keys),
        numbers_(records.most_keys),
        gradients_(records.most_keys * records.width),
        rows_(gradients_.size()) {}

  std::span<std::uint64_t> keys() override { return keys_; }
  std::span<float> gradients() override { return gradients_; }
  std::span<const float> rows() const override { return rows_; }
  /// Loading fills the index, which is not timed.
  void show(std::span<const std::uint32_t> rows) override {
    if (!index_) std::ranges::copy(rows, numbers_.begin());
    if (!index_) return;
    for (std::size_t i = 0; i < rows.size(); ++i) records_.index.try_emplace(keys_[i], rows[i]);
  }
  void pull(std::size_t keys) override {
    owner_.run([&] {
      std::memcpy(owners_keys_.data(), keys_.data(), keys * sizeof(std::uint64_t));
      if (index_) find(keys);
      ahead(keys, [&](std::size_t i) {
        for (std::size_t at = 0; at < records_.width; at += kLine / sizeof(float))
          __builtin_prefetch(rows_.data() + (i + kAhead) * records_.width + at, 1);
        std::memcpy(rows_.data() + i * records_.width, records_.record(numbers_[i]), records_.width * sizeof(float));
      });
    });
  }
  void push(std::size_t keys) override {
    owner_.run([&] {
      ahead(keys, [&](std::size_t i) {
        for (std::size_t at = 0; at < records_.width; at += kLine / sizeof(float))
          __builtin_prefetch(gradients_.data() + (i + kAhead) * records_.width + at);
        float* const record = records_.record(numbers_[i]);
        update_row(records_.width, record, record[records_.width], gradients_.data() + i * records_.width);
      });
    });
  }

 private:
  void find(std::size_t keys) {
    for (std::size_t i = 0; i < std::min(kAhead, keys); ++i) records_.index.prefetch(owners_keys_[i]);
    for (std::size_t i = 0; i < keys; ++i) {
      if (i + kAhead < keys) records_.index.prefetch(owners_keys_[i + kAhead]);
      numbers_[i] = records_.index.find(owners_keys_[i])->second;
    }
  }
  /// Calls `work` for each key, while the records of later keys are on their way.
  void ahead(std::size_t keys, const auto& work) {
    for (std::size_t i = 0; i < std::min(kAhead, keys); ++i) records_.prefetch(numbers_[i]);
    for (std::size_t i = 0; i < keys; ++i) {
      if (i + kAhead < keys) records_.prefetch(numbers_[i + kAhead]);
      work(i);
    }
  }

  Records& records_;
  const bool index_;
  std::vector<std::uint64_t> keys_;
  std::vector<std::uint64_t> owners_keys_;
  std::vector<std::uint32_t> numbers_;
  std::vector<float> gradients_;
  std::vector<float> rows_;
  Owner owner_;
};

}  // namespace

RowFloors::RowFloors(const RowCase& which) : records_(std::make_unique<Records>(which)) {}
RowFloors::~RowFloors() = default;

std::unique_ptr<RowWay> RowFloors::way(bool index) { return std::make_unique<FloorRows<Records>>(*records_, index); }

}  // namespace psring::bench
