// The C interface as wrong programs use it: any call at any time, from several threads, after the job's end too.
#include <array>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <catch2/catch.hpp>

#include <psring/c.h>
#include <psring/tests/support/c_jobs.h>

using psring::JobOptions;
using psring::test::CJobs;

namespace {

constexpr std::size_t kFloats = 80000;  ///< more than a unit of the vector
constexpr int kCalls = 400;

/// Belongs to the threads of a rank.
struct Shared {
  psring_job* job = nullptr;
  psring_vector* vector = nullptr;
  std::vector<float> data = std::vector<float>(kFloats);  // outlives the job
};

/// A thread that calls what it draws, with arguments that are right or wrong.
class Caller {
 public:
  Caller(Shared& shared, unsigned seed) : shared_(shared), random_(seed) {}
  ~Caller() {
    for (psring_work* work : works_) psring_work_free(work);
    for (psring_group* group : groups_) psring_group_free(group);
  }

  /// Returns the first call with a wrong status, or "".
  std::string run() {
    for (int i = 0; i < kCalls; ++i) {
      // A collective that ranks call differently ends the job: with a vector, few are called.
      const int call = shared_.vector == nullptr || draw(100) == 0 ? draw(31) : 7 + draw(24);
      const psring_status status = make(call);
      const bool known = status >= PSRING_OK && status <= PSRING_PENDING && status != PSRING_BUG;
      const bool told = status == PSRING_OK || std::strlen(psring_last_error()) > 0 || status == PSRING_PENDING;
      if (!known || !told)
        return "call " + std::to_string(call) + ": status " + std::to_string(status) + ": " + psring_last_error();
    }
    return "";
  }

 private:
  int draw(int below) { return std::uniform_int_distribution<int>(0, below - 1)(random_); }
  bool rarely() { return draw(20) == 0; }

  psring_job* job() { return rarely() ? nullptr : shared_.job; }
  psring_vector* vector() { return rarely() ? nullptr : shared_.vector; }
  psring_group* group() {
    if (rarely()) return nullptr;
    const std::size_t choice = static_cast<std::size_t>(draw(static_cast<int>(groups_.size()) + 3));
    return choice < groups_.size() ? groups_[choice] : psring_world(shared_.job);
  }
  psring_work* work() {
    return works_.empty() || rarely() ? nullptr
                                      : works_[static_cast<std::size_t>(draw(static_cast<int>(works_.size())))];
  }
  float* data() { return rarely() ? nullptr : shared_.data.data(); }
  std::size_t count() { return static_cast<std::size_t>(rarely() ? -1 : draw(2000)); }
  psring_type type() { return rarely() ? 77 : static_cast<psring_type>(draw(2)); }
  std::size_t rank() { return static_cast<std::size_t>(draw(4) - 1); }
  std::size_t unit() { return static_cast<std::size_t>(draw(3)); }
  std::uint64_t step() { return rarely() ? PSRING_FINAL : static_cast<std::uint64_t>(draw(3)); }
  double timeout() { return rarely() ? -1 : 0.001 * draw(3); }

  psring_status kept(psring_status status, psring_work* work) {
    if (work != nullptr) works_.push_back(work);
    return status;
  }
  psring_status split() {
    const std::array<std::uint32_t, 2> ranks{static_cast<std::uint32_t>(draw(3)), static_cast<std::uint32_t>(draw(3))};
    psring_group* made = nullptr;
    const psring_status status = psring_split(group(), ranks.data(), static_cast<std::size_t>(draw(3)),
                                              static_cast<std::uint32_t>(draw(300)), &made);
    if (made != nullptr) groups_.push_back(made);
    return status;
  }
  psring_status open() {
    static const std::array<std::size_t, 1> large{70001};
    static const std::array<psring_tensor, 1> tensors{{{"table", large.data(), 1}}};
    static const std::array<psring_tensor, 1> others{{{"other", large.data(), 1}}};
    const std::array<psring_unit, 2> units{
        {{"a", tensors.data(), 1}, {"b", draw(200) > 0 ? tensors.data() : others.data(), 1}}};
    psring_vector* made = nullptr;
    const psring_status status = psring_vector_open(job(), units.data(), units.size(), &made);
    return status;
  }
  psring_status free_one() {
    if (!works_.empty()) {
      psring_work_free(works_.back());
      works_.pop_back();
    } else if (!groups_.empty()) {
      psring_group_free(groups_.back());
      groups_.pop_back();
    }
    return PSRING_OK;
  }
  psring_status allocate() {
    void* memory = nullptr;
    const psring_status status = psring_allocate(job(), count(), &memory);
    return status == PSRING_OK && draw(2) == 0 ? psring_release(job(), memory) : status;
  }

  psring_status make(int call) {
    psring_work* made = nullptr;
    std::uint64_t a = 0;
    std::uint64_t b = 0;
    std::size_t size = 0;
    double mean = 0;
    float* values = nullptr;
    const std::array<std::size_t, 2> counts{count(), count()};
    switch (call) {
      case 0:
        return kept(psring_all_reduce(group(), data(), count(), type(), draw(9), &made), made);
      case 1:
        return kept(psring_reduce_scatter(group(), data(), count(), nullptr, type(), draw(9), &made), made);
      case 2:
        return kept(psring_all_gather(group(), data(), count(), counts.data(), type(), &made), made);
      case 3:
        return kept(psring_broadcast(group(), data(), count(), type(), rank(), &made), made);
      case 4:
        return kept(psring_barrier(group(), &made), made);
      case 5:
        return kept(psring_send(group(), data(), count(), type(), rank(), draw(3), &made), made);
      case 6:
        return kept(psring_recv(group(), data(), count(), type(), rank(), draw(3), &made), made);
      case 7:
        return psring_source(work(), &size);
      case 8:
        return psring_moved(group(), &a, &b);
      case 9:
        return psring_predict(group(), draw(4), count(), type(), &a, &b);
      case 10:
        return psring_wait(work(), timeout());
      case 11:
        return psring_test(work());
      case 12:
        return split();
      case 13:
        return open();
      case 14:
        return psring_vector_tensor(vector(), unit(), unit(), &values, &values, &size);
      case 15:
        return psring_push(vector(), unit(), step());
      case 16:
        return psring_pull(vector(), unit(), step());
      case 17:
        return psring_push_pull(vector(), unit(), step());
      case 18:
        return psring_wait_pull(vector(), unit(), step(), timeout());
      case 19:
        return psring_wait_push(vector(), unit(), timeout());
      case 20:
        return psring_vector_begin(vector(), unit(), data());
      case 21:
        return psring_push_from(vector(), unit(), step(), data());
      case 22:
        return psring_pull_into(vector(), unit(), step(), data());
      case 23:
        return psring_vector_unit(vector(), unit(), &size, &a, &b);
      case 24:
        return psring_vector_moved(vector(), &a, &b);
      case 25:
        return psring_vector_staleness(vector(), &mean);
      case 26:
        return psring_check(job());
      case 27:
        return allocate();
      case 28:
        return psring_book(job(), draw(7), draw(100) - 50);
      case 29:
        return rarely() ? psring_leave(job(), timeout()) : psring_memory(job(), draw(7), &size, &size);
      default:
        return free_one();
    }
  }

  Shared& shared_;
  std::mt19937 random_;
  std::vector<psring_work*> works_;
  std::vector<psring_group*> groups_;
};

}  // namespace

TEST_CASE("any call at any time has a status and a line") {
  const bool has_vector = GENERATE(false, true);
  const unsigned seed = GENERATE(range(1U, 7U));
  CAPTURE(has_vector, seed);
  JobOptions job;
  job.workers = 2;
  job.servers = 1;
  job.transport = seed % 2 == 0 ? "tcp" : "auto";
  const CJobs jobs(job);
  std::array<Shared, 2> ranks;
  std::jthread joins([&] { ranks[1].job = jobs.join(1); });
  ranks[0].job = jobs.join(0);
  joins.join();
  std::mutex mutex;
  std::string wrong;
  const auto call = [&](Shared& shared, unsigned number) {
    const std::string found = Caller(shared, number).run();
    const std::scoped_lock lock(mutex);
    if (wrong.empty()) wrong = found;
  };
  const auto call_all = [&](unsigned first) {
    std::vector<std::jthread> threads;
    for (unsigned i = 0; i < 4; ++i) threads.emplace_back(call, std::ref(ranks[i % 2]), first + i);
  };
  if (has_vector) {
    const std::array<std::size_t, 1> shape{70001};
    const psring_tensor tensor{"table", shape.data(), 1};
    const psring_unit unit{"a", &tensor, 1};
    std::vector<std::jthread> starts;
    for (Shared& rank : ranks)
      starts.emplace_back([&] {
        std::uint64_t version = 0;
        psring_vector_open(rank.job, &unit, 1, &rank.vector);
        psring_vector_start(rank.vector, &version);
      });
  }
  call_all(100 * seed);
  for (Shared& rank : ranks) psring_abort(rank.job, "enough");
  call_all(100 * seed + 20);
  CHECK(wrong == "");
  for (Shared& rank : ranks) psring_free(rank.job);
}
