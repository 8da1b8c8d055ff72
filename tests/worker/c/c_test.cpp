// The C interface, called as a program does: two members of one job in this process.
#include <array>
#include <atomic>
#include <cstring>
#include <functional>
#include <limits>
#include <string>
#include <thread>
#include <vector>

#include <catch2/catch.hpp>
#include <sys/wait.h>
#include <unistd.h>

#include <psring/c.h>
#include <psring/tests/support/c_jobs.h>

using psring::test::CJobs;

namespace {

/// Joins with two members, calls `body` for each in a thread of its own, and leaves. Returns the lines of its errors.
std::string run(const std::string& transport, const std::function<void(psring_job*)>& body) {
  const CJobs jobs(CJobs::collectives(2, transport));
  std::array<std::string, 2> errors;
  {
    std::vector<std::jthread> threads;
    for (std::size_t rank = 0; rank < 2; ++rank)
      threads.emplace_back([&, rank] {
        try {
          psring_job* const job = jobs.join(static_cast<std::int64_t>(rank));
          body(job);
          if (psring_leave(job, 60) != PSRING_OK) errors[rank] = psring_last_error();
          psring_work* work = nullptr;
          if (psring_barrier(psring_world(job), &work) != PSRING_USAGE) errors[rank] += "a call after psring_leave";
          psring_free(job);
        } catch (const std::exception& error) {
          errors[rank] = error.what();
        }
      });
  }
  return errors[0] + errors[1];
}

void need(bool holds, const char* what) {
  if (!holds) throw std::runtime_error(std::string(what) + ": " + psring_last_error());
}

void finish(psring_status status, psring_work* work) {
  need(status == PSRING_OK, "start");
  need(psring_wait(work, 60) == PSRING_OK, "wait");
  need(psring_test(work) == PSRING_OK, "test");
  psring_work_free(work);
}

void account(psring_job* job) {
  std::size_t now = 0;
  std::size_t peak = 0;
  void* memory = nullptr;
  need(psring_allocate_for(job, 4096, PSRING_PARAMETERS, &memory) == PSRING_OK, "allocate_for");
  need(psring_memory(job, PSRING_PARAMETERS, &now, &peak) == PSRING_OK && now == 4096 && peak == 4096, "memory");
  need(psring_release(job, memory) == PSRING_OK, "release");
  need(psring_memory(job, PSRING_PARAMETERS, &now, &peak) == PSRING_OK && now == 0 && peak == 4096, "released");
  need(psring_book(job, PSRING_OPTIMIZER, 100) == PSRING_OK && psring_book(job, PSRING_OPTIMIZER, -60) == PSRING_OK,
       "book");
  need(psring_memory(job, PSRING_OPTIMIZER, &now, &peak) == PSRING_OK && now == 40 && peak == 100, "booked");

  psring_group* group = nullptr;
  const std::array<std::uint32_t, 2> ranks{0, 1};
  need(psring_split(psring_world(job), ranks.data(), 2, 9, &group) == PSRING_OK, "split");
  std::vector<float> values(6000);
  std::array<std::uint64_t, 2> predicted{};
  psring_work* work = nullptr;
  using Start = std::function<psring_status()>;
  const std::array<Start, 3> starts{
      [&] { return psring_all_reduce(group, values.data(), 6000, PSRING_F32, PSRING_SUM, &work); },
      [&] { return psring_reduce_scatter(group, values.data(), 6000, nullptr, PSRING_F32, PSRING_SUM, &work); },
      [&] { return psring_all_gather(group, values.data(), 6000, nullptr, PSRING_F32, &work); }};
  for (psring_collective call = PSRING_ALL_REDUCE; call <= PSRING_ALL_GATHER; ++call) {
    std::uint64_t sent = 0;
    std::uint64_t received = 0;
    need(psring_predict(group, call, 6000, PSRING_F32, &sent, &received) == PSRING_OK && sent > 0, "predict");
    predicted[0] += sent;
    predicted[1] += received;
    const psring_status status = starts[static_cast<std::size_t>(call)]();
    finish(status, work);
  }
  const psring_status status = psring_barrier(psring_world(job), &work);
  finish(status, work);
  std::array<std::uint64_t, 2> moved{};
  need(psring_moved(group, moved.data(), moved.data() + 1) == PSRING_OK && moved == predicted, "moved");
  psring_group_free(group);
}

void call_all(psring_job* job) {
  psring_group* const world = psring_world(job);
  const auto rank = static_cast<float>(psring_rank(world));
  need(psring_size(world) == 2, "size");
  void* memory = nullptr;
  need(psring_allocate(job, 4000, &memory) == PSRING_OK, "allocate");
  std::array<float, 4> plain{1, 2, 3, 4};
  for (float* const at : {static_cast<float*>(memory), plain.data()}) {
    psring_work* work = nullptr;
    std::fill_n(at, 4, rank + 1);
    psring_status status = psring_all_reduce(world, at, 4, PSRING_F32, PSRING_MEAN, &work);
    finish(status, work);
    need(at[3] == 1.5F, "mean");
    status = psring_reduce_scatter(world, at, 4, nullptr, PSRING_F32, PSRING_SUM, &work);
    finish(status, work);
    const std::size_t own = psring_rank(world);
    need(at[2 * own] == 3, "reduce_scatter");
    at[own] = rank;
    status = psring_all_gather(world, at, 2, nullptr, PSRING_F32, &work);
    finish(status, work);
    need(at[0] == 0 && at[1] == 1, "all_gather");
    at[0] = rank + 5;
    status = psring_broadcast(world, at, 1, PSRING_F32, 1, &work);
    finish(status, work);
    need(at[0] == 6, "broadcast");
    const std::array<float, 3> in{rank, rank + 10, rank + 20};
    const std::array<std::size_t, 2> counts =
        own == 0 ? std::array<std::size_t, 2>{1, 2} : std::array<std::size_t, 2>{2, 1};
    std::array<float, 3> out{};
    status = psring_all_to_all(world, in.data(), counts.data(), out.data(), counts.data(), PSRING_F32, &work);
    finish(status, work);
    need(own == 0 ? out[0] == 0 && out[1] == 1 && out[2] == 11 : out[0] == 10 && out[1] == 20 && out[2] == 21,
         "all_to_all");
    float got = -1;
    psring_work* receive = nullptr;
    need(psring_recv(world, &got, 1, PSRING_F32, PSRING_ANY_RANK, 7, &receive) == PSRING_OK, "recv");
    status = psring_send(world, &rank, 1, PSRING_F32, 1 - own, 7, &work);
    finish(status, work);
    need(psring_wait(receive, 60) == PSRING_OK, "receive");
    std::size_t source = 9;
    need(psring_source(receive, &source) == PSRING_OK && source == 1 - own && got == 1 - rank, "source");
    psring_work_free(receive);
    status = psring_barrier(world, &work);
    finish(status, work);
  }
  need(psring_release(job, memory) == PSRING_OK, "release");
  need(psring_release(job, memory) == PSRING_USAGE, "second release");
  const std::array<std::uint32_t, 2> swapped{1, 0};
  psring_group* group = nullptr;
  need(psring_split(world, swapped.data(), 2, 3, &group) == PSRING_OK, "split");
  need(psring_rank(group) == 1 - psring_rank(world), "rank");
  psring_work* work = nullptr;
  const psring_status status = psring_all_reduce(group, plain.data(), 4, PSRING_F32, PSRING_MAX, &work);
  finish(status, work);
  psring_group_free(group);
  need(psring_check(job) == PSRING_OK, "check");
}

}  // namespace

TEST_CASE("every function does its work, over shared memory and TCP") {
  CHECK(psring_abi_version() == PSRING_ABI_VERSION);
  CHECK(run("auto", call_all) == "");
  CHECK(run("tcp", call_all) == "");
  CHECK(run("auto", account) == "");
  CHECK(run("tcp", account) == "");
}

TEST_CASE("wrong arguments are told, and change nothing") {
  const auto body = [](psring_job* job) {
    psring_group* const world = psring_world(job);
    psring_work* work = nullptr;
    float value = 1;
    const std::size_t huge = std::numeric_limits<std::size_t>::max();
    const std::array<std::size_t, 2> overflow{huge, 2};
    const std::array<std::size_t, 2> one{1, 1};
    const std::array<std::uint32_t, 1> others{static_cast<std::uint32_t>(1 - psring_rank(world))};
    psring_group* group = nullptr;
    void* memory = nullptr;
    std::size_t source = 0;
    const auto refused = [](psring_status status) {
      need(status == PSRING_USAGE && std::strlen(psring_last_error()) > 0, "not refused");
    };
    refused(psring_all_reduce(nullptr, &value, 1, PSRING_F32, PSRING_SUM, &work));
    refused(psring_all_reduce(world, nullptr, 1, PSRING_F32, PSRING_SUM, &work));
    refused(psring_all_reduce(world, &value, 1, PSRING_F32, PSRING_SUM, nullptr));
    refused(psring_all_reduce(world, &value, 1, static_cast<psring_type>(50), PSRING_SUM, &work));
    refused(psring_all_reduce(world, &value, 1, PSRING_F32, static_cast<psring_op>(50), &work));
    refused(psring_all_reduce(world, &value, 1, PSRING_I32, PSRING_MEAN, &work));
    refused(psring_all_reduce(world, &value, huge, PSRING_F32, PSRING_SUM, &work));
    refused(psring_reduce_scatter(world, &value, 1, nullptr, PSRING_F32, PSRING_SUM, &work));
    refused(psring_all_gather(world, &value, 1, overflow.data(), PSRING_F32, &work));
    refused(psring_broadcast(world, &value, 1, PSRING_F32, 2, &work));
    refused(psring_all_to_all(world, &value, nullptr, &value, one.data(), PSRING_F32, &work));
    refused(psring_all_to_all(world, &value, overflow.data(), &value, one.data(), PSRING_F32, &work));
    refused(psring_send(world, &value, 1, PSRING_F32, psring_rank(world), 0, &work));
    refused(psring_recv(world, &value, 1, PSRING_F32, 5, 0, &work));
    refused(psring_allocate_for(job, 8, 6, &memory));
    refused(psring_book(job, -1, 8));
    refused(psring_book(job, PSRING_STAGING, -1));
    refused(psring_book(job, PSRING_STAGING, std::numeric_limits<std::int64_t>::min()));
    refused(psring_memory(job, PSRING_STAGING, nullptr, &source));
    std::uint64_t sent = 0;
    refused(psring_moved(world, &sent, nullptr));
    refused(psring_predict(world, 3, 8, PSRING_F32, &sent, &sent));
    refused(psring_predict(world, PSRING_ALL_GATHER, 7, PSRING_F32, &sent, &sent));
    refused(psring_predict(world, PSRING_ALL_REDUCE, huge, PSRING_F32, &sent, &sent));
    refused(psring_split(world, others.data(), 1, 1, &group));
    refused(psring_split(world, nullptr, 1, 1, &group));
    refused(psring_allocate(nullptr, 1, &memory));
    refused(psring_wait(nullptr, -1));
    refused(psring_wait(nullptr, std::numeric_limits<double>::quiet_NaN()));
    refused(psring_source(nullptr, &source));
    refused(psring_abort(job, nullptr));
    need(psring_allocate(job, std::size_t{1} << 50, &memory) != PSRING_OK && memory == nullptr, "too much memory");
    psring_free(nullptr);
    psring_group_free(nullptr);
    psring_group_free(world);
    psring_work_free(nullptr);
    need(psring_world(nullptr) == nullptr && psring_rank(nullptr) == 0, "null");
    const psring_status status = psring_all_reduce(world, &value, 1, PSRING_F32, PSRING_SUM, &work);
    finish(status, work);
    need(value == 2, "sum");
  };
  CHECK(run("auto", body) == "");
}

TEST_CASE("a group may be freed while its operations are in flight") {
  const auto body = [](psring_job* job) {
    psring_group* const world = psring_world(job);
    const std::array<std::uint32_t, 2> ranks{0, 1};
    psring_group* group = nullptr;
    float sum = 1;
    float got = 0;
    psring_work* reduction = nullptr;
    psring_work* receive = nullptr;
    const auto begin = [&] {
      need(psring_split(world, ranks.data(), 2, 3, &group) == PSRING_OK, "split");
      need(psring_recv(group, &got, 1, PSRING_F32, 1 - psring_rank(world), 5, &receive) == PSRING_OK, "receive");
      need(psring_all_reduce(group, &sum, 1, PSRING_F32, PSRING_SUM, &reduction) == PSRING_OK, "all_reduce");
      psring_group_free(group);
    };
    const auto meet = [&] {
      psring_work* barrier = nullptr;
      const psring_status status = psring_barrier(world, &barrier);
      finish(status, barrier);
    };
    // Rank 1 begins its part after rank 0 has freed the group. Nobody sends: the receives stay in flight to the end.
    if (psring_rank(world) == 0) begin();
    meet();
    if (psring_rank(world) == 1) begin();
    need(psring_wait(reduction, 60) == PSRING_OK && sum == 2, "the sum");
    psring_work_free(reduction);
    meet();
    need(psring_test(receive) == PSRING_PENDING, "a receive without a message");
    need(psring_split(world, ranks.data(), 2, 3, &group) == PSRING_USAGE && group == nullptr, "a number in use");
    psring_work_free(receive);
  };
  CHECK(run("auto", body) == "");
  CHECK(run("tcp", body) == "");
}

TEST_CASE("options of a join are checked") {
  psring_job* job = nullptr;
  CHECK(psring_join(nullptr, &job) == PSRING_USAGE);
  psring_join_options options{};
  CHECK(psring_join(&options, &job) == PSRING_USAGE);
  options.size = sizeof options;
  CHECK(psring_join(&options, &job) == PSRING_USAGE);
  options.endpoint = "127.0.0.1:1";
  options.key_file = "/nowhere/job.key";
  CHECK(psring_join(&options, nullptr) == PSRING_USAGE);
  CHECK(psring_join(&options, &job) == PSRING_DATA);
  CHECK(std::string(psring_last_error()).find("/nowhere/job.key") != std::string::npos);
  for (const std::int64_t rank : {std::int64_t{1} << 32, std::int64_t{-2}}) {
    options.rank = rank;
    CHECK(psring_join(&options, &job) == PSRING_USAGE);
    CHECK(std::string(psring_last_error()).find(std::to_string(rank)) != std::string::npos);
  }
}

TEST_CASE("a job is left once, from whichever thread") {
  const CJobs jobs(CJobs::collectives(2));
  psring_job* second = nullptr;
  std::jthread joins([&] { second = jobs.join(1); });
  psring_job* const first = jobs.join(0);
  joins.join();
  std::atomic<int> left = 0;
  std::atomic<int> refused = 0;
  {
    std::vector<std::jthread> threads;
    for (psring_job* job : {first, first, first, second})
      threads.emplace_back([&, job] {
        const psring_status status = psring_leave(job, 60);
        ++(status == PSRING_OK ? left : refused);
        if (status != PSRING_OK && status != PSRING_USAGE) ++left;
      });
  }
  CHECK(left == 2);
  CHECK(refused == 2);
  CHECK(psring_leave(first, 60) == PSRING_USAGE);
  psring_work* work = nullptr;
  CHECK(psring_barrier(psring_world(first), &work) == PSRING_USAGE);
  psring_free(first);
  psring_free(second);
}

TEST_CASE("an operation that is in flight when the job ends fails") {
  const CJobs jobs(CJobs::collectives(2));
  psring_job* second = nullptr;
  std::jthread joins([&] { second = jobs.join(1); });
  psring_job* const first = jobs.join(0);
  joins.join();
  float value = 0;
  psring_work* work = nullptr;
  REQUIRE(psring_recv(psring_world(first), &value, 1, PSRING_F32, 1, 0, &work) == PSRING_OK);
  CHECK(psring_wait(work, 0) == PSRING_PENDING);
  psring_status waited = PSRING_PENDING;
  psring_status left = PSRING_PENDING;
  std::string line;
  {
    const std::jthread waits([&] {
      waited = psring_wait(work, 60);
      line = psring_last_error();
    });
    const std::jthread leaves([&] { left = psring_leave(second, 60); });
    CHECK(psring_leave(first, 60) == PSRING_OK);
  }
  CHECK(left == PSRING_OK);
  CHECK(waited == PSRING_USAGE);
  CHECK(line.find("recv of 1 f32") != std::string::npos);
  CHECK(line.find("this worker has left the job") != std::string::npos);
  CHECK(psring_wait(work, 60) == PSRING_USAGE);
  CHECK(psring_check(first) == PSRING_OK);
  psring_work_free(work);
  psring_free(first);
  psring_free(second);
}

TEST_CASE("a job that was aborted is not left, however often") {
  const CJobs jobs(CJobs::collectives(2));
  psring_job* second = nullptr;
  std::jthread joins([&] { second = jobs.join(1); });
  psring_job* const first = jobs.join(0);
  joins.join();
  CHECK(psring_abort(first, "enough") == PSRING_OK);
  for (int i = 0; i < 3; ++i) CHECK(psring_leave(first, 1) == PSRING_PEER_LOST);
  CHECK(psring_abort(first, "again") == PSRING_OK);
  psring_free(first);
  psring_free(second);
}

TEST_CASE("an abort reaches the other rank, and all its threads") {
  const CJobs jobs(CJobs::collectives(2));
  psring_job* second = nullptr;
  std::jthread joins([&] { second = jobs.join(1); });
  psring_job* const first = jobs.join(0);
  joins.join();
  std::array<std::string, 3> told;
  {
    std::vector<std::jthread> threads;
    for (int t = 0; t < 3; ++t)
      threads.emplace_back([&, t] {
        psring_work* work = nullptr;
        float value = 0;
        // The abort may come before the call, or during the wait.
        psring_status status = psring_recv(psring_world(first), &value, 1, PSRING_F32, 1, t, &work);
        if (status == PSRING_OK) status = psring_wait(work, 60);
        told[t] = std::to_string(status) + ": " + psring_last_error();
        psring_work_free(work);
      });
    CHECK(psring_abort(second, "enough") == PSRING_OK);
  }
  const std::string lost = std::to_string(PSRING_PEER_LOST) + ": ";
  for (const std::string& each : told) CHECK_THAT(each, Catch::StartsWith(lost) && Catch::Contains("enough"));
  CHECK(psring_check(first) == PSRING_PEER_LOST);
  psring_free(first);
  psring_free(second);
}

TEST_CASE("a forked process is not a member") {
  const auto body = [](psring_job* job) {
    if (psring_rank(psring_world(job)) == 1) return;
    const pid_t child = ::fork();
    if (child == 0) {
      psring_work* work = nullptr;
      const bool refused =
          psring_barrier(psring_world(job), &work) == PSRING_USAGE && psring_leave(job, 0) == PSRING_USAGE;
      psring_free(job);
      ::_exit(refused ? 0 : 1);
    }
    int status = -1;
    ::waitpid(child, &status, 0);
    need(status == 0, "the child's calls were not refused");
  };
  CHECK(run("auto", body) == "");
}
