// The tables of a job of one worker, through the C interface: in whatever order its functions are called, and with
// whatever arguments, each returns a status and a line. A wrong call changes nothing: the job lives, and rows are those
// that the accepted gradients lead to.
#include <array>
#include <cstdint>
#include <limits>
#include <map>
#include <vector>

#include <psring/c.h>
#include <psring/tests/fuzz/input.h>
#include <psring/tests/support/c_jobs.h>

namespace psring::fuzz {
namespace {

constexpr std::size_t kMostKeys = 8;
constexpr std::size_t kKeys = 16;  ///< of a call, at most

/// The job that the input begins with.
JobOptions job_of(Input& in) {
  JobOptions job;
  job.workers = 1;
  job.servers = 1 + in.below(3);
  job.op_timeout = 5;
  if (in.below(4) == 0) job.transport = "tcp";
  return job;
}

/// One job, and the calls of one run. Rows have one value, 0 at first, and each gradient is -1: with sgd and a rate of
/// 1 a value counts the gradients of its key.
class Calls {
 public:
  explicit Calls(Input in) : in_(in), jobs_(job_of(in_)), job_(jobs_.join(0)) {}
  ~Calls() {
    for (psring_rows* rows : rows_) psring_rows_free(rows);
    psring_free(job_);
  }
  Calls(const Calls&) = delete;
  Calls& operator=(const Calls&) = delete;

  void run() {
    while (!in_.empty()) {
      const psring_status status = call();
      require(status == PSRING_OK || status == PSRING_USAGE || status == PSRING_PENDING, psring_last_error());
      if (status == PSRING_USAGE) require(psring_last_error()[0] != '\0', "a line for an error");
      require(psring_check(job_) == PSRING_OK, psring_last_error());
    }
    finish();
  }

 private:
  /// Requires that what was begun completes, and that the rows are those that the accepted calls lead to.
  void finish() {
    if (started_) {
      require(psring_table_wait(job_, 20) == PSRING_OK, psring_last_error());
      std::uint64_t cursor = 0;
      std::size_t count = 0;
      if (listing_)
        require(psring_table_list(table_, &cursor_, kKeys, keys_.data(), values_.data(), &count, 20) == PSRING_OK,
                psring_last_error());
      for (std::size_t listed = 0;; listed += count) {
        require(psring_table_list(table_, &cursor, kKeys, keys_.data(), values_.data(), &count, 20) == PSRING_OK,
                psring_last_error());
        if (count == 0) {
          require(listed == expected_.size(), "all rows");
          break;
        }
        for (std::size_t i = 0; i < count; ++i)
          require(expected_.contains(keys_.at(i)) && expected_.at(keys_.at(i)) == values_.at(i), "the value of a row");
      }
    }
    require(psring_leave(job_, 20) == PSRING_OK, psring_last_error());
    require(psring_table_wait(job_, 0) == PSRING_USAGE, "a call after the end");
  }

  std::size_t count() { return in_.below(8) == 0 ? in_.odd_number() | std::size_t{1} << 33 : in_.below(kKeys + 1); }
  std::uint64_t version() { return in_.below(8) == 0 ? in_.odd_number() : step_ + in_.below(2); }
  double timeout() {
    return std::array{0.0, 0.001, 0.1, 0.1, -1.0, std::numeric_limits<double>::quiet_NaN()}[in_.below(6)];
  }
  template <class T>
  T* place(T& value) {
    return in_.below(16) == 0 ? nullptr : &value;
  }
  float* memory(std::vector<float>& values) { return in_.below(16) == 0 ? nullptr : values.data(); }
  psring_job* job() { return in_.below(32) == 0 ? nullptr : job_; }
  psring_table* table() { return in_.below(32) == 0 ? nullptr : table_; }
  psring_rows* rows() { return rows_.empty() || in_.below(16) == 0 ? nullptr : rows_[in_.below(rows_.size())]; }
  const std::uint64_t* some_keys() {
    for (std::uint64_t& key : keys_) key = in_.below(4) == 0 ? in_.odd_number() : in_.below(12);
    return in_.below(16) == 0 ? nullptr : keys_.data();
  }

  psring_bags bags(bool& valid) {
    const std::size_t own = in_.below(kKeys + 1);
    psring_bags bags{};
    bags.size = in_.below(16) == 0 ? in_.below(80) : sizeof bags;
    bags.lookups = bags.bags = own;
    for (std::int64_t& place : places_) place = static_cast<std::int64_t>(in_.below(10)) - 1;
    for (std::size_t i = 0; i < begins_.size(); ++i) begins_.at(i) = static_cast<std::int64_t>(i + in_.below(2));
    if (in_.below(2) == 0) bags.places = places_.data();
    if (in_.below(4) == 0) bags.begins = begins_.data(), bags.bags = in_.below(kKeys + 1);
    if (in_.below(4) == 0) bags.weights = ones_.data();
    bags.mean = static_cast<std::int32_t>(in_.below(4)) - 1;
    valid = bags.size == sizeof bags;
    return bags;
  }

  psring_status open() {
    psring_table_options options{};
    options.size = in_.below(16) == 0 ? in_.below(80) : sizeof options;
    options.name = std::array<const char*, 4>{"a", "a", "", nullptr}[in_.below(4)];
    options.width = in_.below(8) == 0 ? in_.odd_number() : 1;
    options.type = in_.below(8) == 0 ? static_cast<psring_type>(in_.below(10)) : PSRING_F32;
    options.init = std::array<const char*, 4>{"constant:0", "constant:0", "normal:", "constant:nan"}[in_.below(4)];
    options.most_keys = in_.below(8) == 0 ? in_.odd_number() | std::size_t{1} << 40 : kMostKeys;
    psring_table* opened = nullptr;
    const psring_status status = psring_table_open(job(), &options, in_.below(16) == 0 ? nullptr : &opened);
    require((status == PSRING_OK) == (opened != nullptr), "a table");
    if (opened == nullptr) return status;
    if (options.width != 1 || options.type != PSRING_F32 || options.most_keys != kMostKeys ||
        options.size != sizeof options)
      strange_ = true;
    else if (table_ == nullptr)
      table_ = opened;
    return status;
  }

  psring_status fetch() {
    const std::size_t most = count();
    const std::uint64_t at = version();
    const std::uint64_t* const keys = some_keys();
    psring_rows* fetched = nullptr;
    const psring_status status = psring_table_fetch(table(), keys, most, at, in_.below(16) == 0 ? nullptr : &fetched);
    require((status == PSRING_OK) == (fetched != nullptr), "rows");
    if (fetched == nullptr) return status;
    rows_.push_back(fetched);
    keys_of_.emplace(fetched, std::vector<std::uint64_t>(keys_.begin(), keys_.begin() + static_cast<long>(most)));
    return status;
  }

  /// A gradient of -1 for each of some keys, which nobody has to have fetched.
  psring_status add_by_keys() {
    const std::size_t most = count();
    const std::uint64_t* const keys = some_keys();
    const psring_status status = psring_table_add(table(), keys, most, memory(gradients_));
    if (status == PSRING_OK)
      for (std::size_t i = 0; i < most; ++i) ++added_[keys[i]];
    return status;
  }

  /// A gradient of -1 for each of the fetch's keys.
  psring_status add() {
    if (in_.below(3) == 0) return add_by_keys();
    psring_rows* const to = rows();
    psring_bags bags{};
    bags.size = sizeof bags;
    const std::vector<std::uint64_t> keys = to == nullptr ? std::vector<std::uint64_t>{} : keys_of_.at(to);
    bags.lookups = bags.bags = keys.size();
    const psring_status status = psring_rows_add_pooled(to, &bags, memory(gradients_));
    if (status == PSRING_OK)
      for (const std::uint64_t key : keys) ++added_[key];
    return status;
  }

  /// The places of a handle's rows are not known here: what this adds is dropped.
  psring_status use() {
    bool valid = false;
    psring_rows* const of = rows();
    const psring_bags some = bags(valid);
    const psring_bags* const given = in_.below(16) == 0 ? nullptr : &some;
    if (in_.below(2) == 0) return psring_rows_pool(of, given, memory(values_));
    const psring_status status = psring_rows_add_pooled(of, given, memory(values_));
    return status == PSRING_OK ? drop() : status;
  }

  psring_status drop() {
    const psring_status status = psring_table_drop(job_);
    if (status == PSRING_OK) added_.clear();
    return status;
  }

  psring_status end_step() {
    const std::array rates{1.0, 1.0, 1.0, 1.0, -1.0, 1e300, std::numeric_limits<double>::quiet_NaN()};
    const psring_status status = psring_table_end_step(job(), rates.at(in_.below(rates.size())));
    if (status != PSRING_OK) return status;
    for (const auto& [key, times] : added_) expected_[key] += static_cast<float>(times);
    added_.clear();
    ++step_;
    return status;
  }

  psring_status assign() {
    const std::size_t most = count();
    const std::uint64_t* const keys = some_keys();
    const psring_status status = psring_table_assign(table(), keys, most, memory(ones_));
    if (status == PSRING_OK)
      for (std::size_t i = 0; i < most; ++i) expected_[keys[i]] = 1;
    return status;
  }

  psring_status call() {
    std::uint64_t sent = 0;
    std::uint64_t received = 0;
    const float* values = nullptr;
    const std::int64_t* places = nullptr;
    std::size_t number = 0;
    if (strange_) return PSRING_OK;  // the servers may have no memory for such a table
    switch (in_.below(16)) {
      case 0:
        return open();
      case 1: {
        const psring_status status = psring_table_start(job(), place(sent));
        started_ = started_ || status == PSRING_OK;
        return status;
      }
      case 2:
      case 3:
        return fetch();
      case 4:
        return psring_rows_wait(rows(), timeout());
      case 5: {
        psring_rows* const of = rows();
        return psring_rows_values(of, place(values), place(places), place(number));
      }
      case 6:
      case 7:
        return add();
      case 8:
        return use();
      case 9: {
        if (rows_.empty()) return PSRING_OK;
        psring_rows* const last = rows_.back();
        rows_.pop_back();
        keys_of_.erase(last);
        psring_rows_free(last);
        return PSRING_OK;
      }
      case 10:
        return psring_table_wait(job(), timeout());
      case 11:
      case 12:
        return end_step();
      case 13:
        return assign();
      case 14: {
        const std::size_t most = in_.below(kKeys + 1);
        psring_table* const of = table();
        float* const into = memory(values_);
        std::size_t* const counted = place(number);
        const psring_status status =
            psring_table_list(of, place(cursor_), most, keys_.data(), into, counted, timeout());
        if (status != PSRING_USAGE) listing_ = status == PSRING_PENDING;
        return status;
      }
      default:
        if (in_.below(3) == 0) return drop();
        if (in_.below(2) == 0) return psring_table_moved(job(), place(sent), place(received));
        return psring_table_predict(job(), place(sent), place(received));
    }
  }

  Input in_;
  const test::CJobs jobs_;
  psring_job* const job_;
  psring_table* table_ = nullptr;
  std::vector<psring_rows*> rows_;
  std::map<psring_rows*, std::vector<std::uint64_t>> keys_of_;
  std::map<std::uint64_t, std::size_t> added_;  ///< gradients of the current step, by key
  std::map<std::uint64_t, float> expected_;     ///< values, by key
  std::array<std::uint64_t, kKeys> keys_{};
  std::array<std::int64_t, kKeys> places_{};
  std::array<std::int64_t, kKeys> begins_{};
  std::vector<float> values_ = std::vector<float>(kKeys);
  std::vector<float> ones_ = std::vector<float>(kKeys, 1.0F);
  std::vector<float> gradients_ = std::vector<float>(kKeys, -1.0F);
  std::uint64_t step_ = 0;
  std::uint64_t cursor_ = 0;
  bool started_ = false;
  bool listing_ = false;  ///< a list is awaited
  bool strange_ = false;
};

}  // namespace

void run(Input in) { Calls(in).run(); }

}  // namespace psring::fuzz
