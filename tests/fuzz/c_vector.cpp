// The vector of a job of one worker and one server, through the C interface: in whatever order its functions are
// called, and with whatever arguments, each returns a status and a line. A wrong call changes nothing: the job lives,
// and values are those that the accepted pushes lead to.
#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include <psring/c.h>
#include <psring/tests/fuzz/input.h>
#include <psring/tests/support/c_jobs.h>

namespace psring::fuzz {
namespace {

constexpr std::size_t kUnits = 2;
constexpr std::size_t kElements = 256;  ///< of a unit: one tensor, without padding

/// The job that the input begins with.
JobOptions job_of(Input& in, const std::string& checkpoints) {
  JobOptions job;
  job.workers = 1;
  job.lr = 1;
  job.op_timeout = 2;
  job.consistency = std::array{"bsp", "bsp", "ssp:1", "asp"}[in.below(4)];
  if (in.below(4) == 0 && job.consistency == "bsp") job.optimizer_on = "worker";
  if (in.below(4) == 0) job.transport = "tcp";
  if (in.below(4) == 0) job.compress = std::array{"int8", "top-k:ratio=0.1", "bf16"}[in.below(3)];
  if (in.below(4) == 0) job.error_feedback = false;
  if (in.below(4) == 0) {
    job.checkpoint_every = 1;
    job.checkpoint_dir = checkpoints;
    job.run_id = "run";
  }
  return job;
}

/// One job, and the calls of one run. The memory that calls may use stays until the job has gone.
class Calls {
 public:
  explicit Calls(Input in) : in_(in), options_(job_of(in_, folder_.file("checkpoints"))), jobs_(options_) {
    job_ = jobs_.join(0);
  }
  ~Calls() { psring_free(job_); }
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
  /// Requires that what was begun completes. Where the servers update without loss, each accepted push has subtracted
  /// one.
  void finish() {
    if (vector_ == nullptr || !agreed_) return;
    for (std::size_t unit = 0; unit < kUnits; ++unit) {
      require(psring_wait_push(vector_, unit, 10) == PSRING_OK, psring_last_error());
      if (options_.optimizer_on != "server" || !begun_.at(unit)) continue;
      require(psring_wait_pull(vector_, unit, 0, 10) == PSRING_OK, psring_last_error());
      require(psring_pull_into(vector_, unit, due_.at(unit), values_.data()) == PSRING_OK, psring_last_error());
      require(psring_wait_pull(vector_, unit, due_.at(unit), 10) == PSRING_OK, psring_last_error());
      if (options_.compress != "none") continue;
      for (const float value : values_) require(value == -static_cast<float>(due_.at(unit)), "the value of all pushes");
    }
  }

  std::size_t unit() { return in_.below(8) == 0 ? in_.odd_number() : in_.below(kUnits); }
  /// A step or version: often the one that is due.
  std::uint64_t moment(std::size_t unit) {
    const std::uint64_t due = unit < kUnits ? due_[unit] : 0;
    switch (in_.below(8)) {
      case 0:
        return in_.odd_number();
      case 1:
        return due + 1;
      case 2:
        return due - 1;
      default:
        return due;
    }
  }
  double timeout() {
    return std::array{0.0, 0.001, 0.1, 0.1, -1.0, std::numeric_limits<double>::quiet_NaN()}[in_.below(6)];
  }
  template <class T>
  T* place(T& value) {
    return in_.below(16) == 0 ? nullptr : &value;
  }
  float* memory(std::vector<float>& values) { return in_.below(16) == 0 ? nullptr : values.data(); }

  psring_status pushed(std::size_t unit, psring_status status) {
    if (status == PSRING_OK) ++due_.at(unit);
    return status;
  }

  psring_status started(psring_status status, bool with_values) {
    if (status != PSRING_OK) return status;
    agreed_ = true;
    begun_.fill(with_values);
    return status;
  }

  psring_status open() {
    const std::array<std::size_t, 2> shape{16, 16};
    const std::array<std::size_t, 2> other{in_.odd_number(), in_.odd_number()};
    const bool strange = in_.below(4) == 0;
    const psring_tensor first{in_.below(16) == 0 ? nullptr : "a.w", strange ? other.data() : shape.data(), 2};
    const psring_tensor second{in_.below(16) == 0 ? "a.w" : "b.w", shape.data(), 2};
    const std::array<psring_unit, kUnits> units{{{"a", in_.below(16) == 0 ? nullptr : &first, 1},
                                                 {in_.below(16) == 0 ? "a" : "b", &second, strange ? 0U : 1U}}};
    psring_vector* opened = nullptr;
    const psring_status status = psring_vector_open(job_, units.data(), in_.below(16) == 0 ? 0 : kUnits, &opened);
    require((status == PSRING_OK) == (opened != nullptr), "a vector");
    if (opened != nullptr && !strange) fill_gradients(vector_ = opened);
    return strange && status == PSRING_DATA ? PSRING_USAGE : status;  // larger than the memory
  }

  void fill_gradients(psring_vector* vector) {
    float* values = nullptr;
    float* gradients = nullptr;
    std::size_t count = 0;
    for (std::size_t unit = 0; unit < kUnits; ++unit)
      if (psring_vector_tensor(vector, unit, 0, &values, &gradients, &count) == PSRING_OK)
        std::fill_n(gradients, count, 1.0F);
  }

  psring_status call() {
    std::uint64_t version = 0;
    std::uint64_t bytes = 0;
    std::size_t count = 0;
    double mean = 0;
    float* values = nullptr;
    float* gradients = nullptr;
    switch (in_.below(20)) {
      case 0:
      case 1:
        return open();
      case 2:
        return started(psring_vector_start(vector_, place(version)), true);
      case 3:
        return started(psring_vector_agree(vector_, place(version)), false);
      case 4: {
        const std::size_t at = unit();
        const psring_status status = psring_vector_begin(vector_, at, memory(zeros_));
        if (status == PSRING_OK) begun_.at(at) = true;
        return status;
      }
      case 5: {
        const std::size_t at = unit();
        const std::size_t tensor = in_.below(3);
        return psring_vector_tensor(vector_, at, tensor, place(values), place(gradients), place(count));
      }
      case 6: {
        const std::size_t at = unit();
        return pushed(at, psring_push(vector_, at, moment(at)));
      }
      case 7: {
        const std::size_t at = unit();
        const std::uint64_t step = moment(at);
        return pushed(at, psring_push_from(vector_, at, step, memory(gradients_)));
      }
      case 8:
      case 9: {
        const std::size_t at = unit();
        return pushed(at, psring_push_pull(vector_, at, moment(at)));
      }
      case 10: {
        const std::size_t at = unit();
        return psring_pull(vector_, at, moment(at));
      }
      case 11: {
        const std::size_t at = unit();
        const std::uint64_t wanted = moment(at);
        return psring_pull_into(vector_, at, wanted, memory(values_));
      }
      case 12:
      case 13: {
        const std::size_t at = unit();
        const std::uint64_t wanted = moment(at);
        return psring_wait_pull(vector_, at, wanted, timeout());
      }
      case 14: {
        const std::size_t at = unit();
        return psring_wait_push(vector_, at, timeout());
      }
      case 15: {
        const std::size_t at = unit();
        return psring_vector_unit(vector_, at, place(count), place(bytes), place(version));
      }
      case 16:
        return psring_vector_moved(vector_, place(bytes), place(version));
      case 17:
        return psring_vector_staleness(vector_, place(mean));
      case 18:
        return psring_vector_save(vector_, moment(0));
      default:
        return in_.below(4) == 0 ? psring_vector_finish(vector_) : PSRING_OK;
    }
  }

  Input in_;
  const test::TemporaryFolder folder_;
  const JobOptions options_;
  std::vector<float> values_ = std::vector<float>(kElements);
  std::vector<float> zeros_ = std::vector<float>(kElements);  ///< the first values, and their answer
  std::vector<float> gradients_ = std::vector<float>(kElements, 1.0F);
  const test::CJobs jobs_;
  psring_job* job_ = nullptr;
  psring_vector* vector_ = nullptr;
  bool agreed_ = false;
  std::array<bool, kUnits> begun_{};
  std::array<std::uint64_t, kUnits> due_{};
};

}  // namespace

void run(Input in) { Calls(in).run(); }

}  // namespace psring::fuzz
