// The C interface at a rank of a job, which is alone: whatever it is called with, it returns a status and a line, and
// neither throws nor waits.
#include <array>
#include <cstdint>
#include <deque>
#include <limits>
#include <memory>
#include <vector>

#include <psring/c.h>
#include <psring/tests/fuzz/input.h>
#include <psring/tests/support/c_jobs.h>

namespace psring::fuzz {
namespace {

/// A job of one worker. A message whose receive has another type ends it; the next run joins a new one.
class Job {
 public:
  ~Job() { psring_free(job_); }
  psring_job* handle() const { return job_; }

 private:
  const test::CJobs jobs_{test::CJobs::collectives(1)};
  psring_job* const job_ = jobs_.join(0);
};

/// The arguments of the calls of one run. Counts are such that what they name lies in the memory, or are refused.
class Calls {
 public:
  Calls(Input in, psring_job* job) : in_(in), job_(job), group_(psring_world(job)) {}
  ~Calls() {
    for (psring_work* work : works_) psring_work_free(work);
    for (void* memory : memory_) psring_release(job_, memory);
  }

  void run() {
    while (!in_.empty()) {
      psring_work* work = nullptr;
      const psring_status status = call(work);
      require(status >= PSRING_OK && status <= PSRING_PENDING, "a status");
      if (status != PSRING_OK && status != PSRING_PENDING)
        require(psring_last_error()[0] != '\0', "a line for an error");
      if (work != nullptr) works_.push_back(work);
    }
  }

 private:
  std::size_t count() {
    const std::uint64_t any = in_.odd_number();
    constexpr auto kMost = static_cast<std::uint64_t>(std::numeric_limits<std::ptrdiff_t>::max());
    return any <= values_.size() || any > kMost ? any : any % values_.size();  // bytes, too, are elements
  }
  void* data() { return in_.below(8) == 0 ? nullptr : values_.data(); }
  psring_type type() { return static_cast<psring_type>(in_.below(10)); }
  psring_op op() { return static_cast<psring_op>(in_.below(10)); }
  psring_purpose purpose() { return static_cast<psring_purpose>(in_.below(8)) - 1; }
  const std::size_t* counts() {
    counts_[0] = count();
    return in_.below(3) == 0 ? nullptr : counts_.data();
  }
  psring_group* group() { return in_.below(16) == 0 ? nullptr : group_; }

  psring_status call(psring_work*& work) {
    switch (in_.below(18)) {
      case 0:
        return psring_all_reduce(group(), data(), count(), type(), op(), &work);
      case 1:
        return psring_reduce_scatter(group(), data(), count(), counts(), type(), op(), &work);
      case 2:
        return psring_all_gather(group(), data(), count(), counts(), type(), &work);
      case 3:
        return psring_broadcast(group(), data(), count(), type(), in_.odd_number(), &work);
      case 4:
        return psring_barrier(group(), &work);
      case 5:
        return psring_all_to_all(group(), data(), counts(), other_.data(), counts(), type(), &work);
      case 6:
        return psring_send(group(), data(), count(), type(), in_.odd_number(), in_.number<std::int64_t>(), &work);
      case 7:
        return psring_recv(group(), data(), count(), type(), in_.odd_number(), in_.number<std::int64_t>(), &work);
      case 8:
        return psring_test(works_.empty() ? nullptr : works_[in_.below(works_.size())]);
      case 9:
        return psring_wait(works_.empty() ? nullptr : works_[in_.below(works_.size())], in_.below(2) == 0 ? 0 : -1);
      case 10: {
        std::size_t source = 0;
        return psring_source(works_.empty() ? nullptr : works_[in_.below(works_.size())], &source);
      }
      case 11: {
        void* memory = nullptr;
        const psring_status status = psring_allocate(job_, in_.odd_number(), &memory);
        if (memory != nullptr) memory_.push_back(memory);
        return status;
      }
      case 12: {
        if (memory_.empty()) return psring_release(job_, values_.data());
        void* const memory = memory_.back();
        memory_.pop_back();
        return psring_release(job_, memory);
      }
      case 13: {
        void* memory = nullptr;
        const psring_status status = psring_allocate_for(job_, in_.odd_number(), purpose(), &memory);
        if (memory != nullptr) memory_.push_back(memory);
        return status;
      }
      case 14:
        return psring_book(job_, purpose(), in_.number<std::int64_t>());
      case 15: {
        std::size_t now = 0;
        std::size_t peak = 0;
        const psring_status status = psring_memory(job_, purpose(), &now, in_.below(8) == 0 ? nullptr : &peak);
        require(status != PSRING_OK || now <= peak, "a peak");
        return status;
      }
      case 16: {
        std::uint64_t sent = 0;
        std::uint64_t received = 0;
        if (in_.below(2) == 0) return psring_moved(group(), &sent, in_.below(8) == 0 ? nullptr : &received);
        return psring_predict(group(), static_cast<psring_collective>(in_.below(5)), count(), type(), &sent, &received);
      }
      default: {
        const std::array<std::uint32_t, 2> ranks{in_.byte(), in_.byte()};
        psring_group* made = nullptr;
        const psring_status status =
            psring_split(group(), ranks.data(), in_.below(3), static_cast<std::uint32_t>(in_.odd_number()), &made);
        psring_group_free(made);
        return status;
      }
    }
  }

  Input in_;
  psring_job* const job_;
  psring_group* const group_;
  std::vector<double> values_ = std::vector<double>(512);
  std::vector<double> other_ = std::vector<double>(512);
  std::array<std::size_t, 1> counts_{};
  std::deque<psring_work*> works_;
  std::vector<void*> memory_;
};

}  // namespace

void run(Input in) {
  static std::unique_ptr<Job> job;  // joining takes longer than a thousand calls
  if (job == nullptr || psring_check(job->handle()) != PSRING_OK) job = std::make_unique<Job>();
  Calls(in, job->handle()).run();
}

}  // namespace psring::fuzz
