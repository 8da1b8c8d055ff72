// Tables of rows through the C interface: workers and servers in this process, beside a naive sum in f64, and misuse.
#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <functional>
#include <map>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <catch2/catch.hpp>
#include <sys/wait.h>
#include <unistd.h>

#include <psring/c.h>
#include <psring/common/base/rng.h>
#include <psring/tests/support/c_jobs.h>
#include <psring/tests/support/c_tables.h>
#include <psring/worker/c/handles.h>

using psring::JobOptions;
using namespace psring::test;

namespace {

std::vector<std::uint64_t> keys_of(std::size_t rank, std::uint64_t step) {
  const psring::CounterRng rng(
      {.seed = 7, .step = static_cast<std::uint32_t>(step), .rank = static_cast<std::uint16_t>(rank)});
  std::vector<std::uint64_t> keys(rank == 1 && step == 3 ? 0 : 20);
  for (std::size_t i = 0; i < keys.size(); ++i)
    keys[i] = rng.block(static_cast<std::uint32_t>(i))[0] % 30 * 0x9E3779B97F4A7C15U;
  return keys;
}

float gradient(std::size_t rank, std::uint64_t step, std::size_t i) {
  return static_cast<float>((i + 3 * rank + 5 * step) % 9) - 4;
}

/// Trains by sgd beside sums in f64. Rows are prefetched, and gradients come from two fetches.
void train(psring_job* job) {
  const std::size_t rank = psring_rank(psring_world(job));
  psring_table* const table = opened(job);
  psring_table* const other = opened(job, "never used");
  std::uint64_t version = 99;
  ok(psring_table_start(job, &version), "start");
  need(version == 0, "first step");
  std::map<std::uint64_t, std::array<double, kWidth>> expected;
  psring_rows* next = fetched(table, keys_of(rank, 0), 0);
  for (std::uint64_t step = 0; step < 6; ++step) {
    const std::vector<std::uint64_t> keys = keys_of(rank, step);
    psring_rows* const first = next;
    psring_rows* const again = fetched(table, keys, step);
    next = fetched(table, keys_of(rank, step + 1), step + 1);
    for (psring_rows* const rows : {first, again}) {
      ok(psring_rows_wait(rows, 60), "wait");
      const float* values = nullptr;
      const std::int64_t* places = nullptr;
      std::size_t different = 0;
      ok(psring_rows_values(rows, &values, &places, &different), "values");
      need(different <= keys.size(), "different keys");
      std::vector<float> gradients(keys.size() * kWidth);
      for (std::size_t i = 0; i < keys.size(); ++i)
        for (std::size_t j = 0; j < kWidth; ++j) {
          gradients[i * kWidth + j] = gradient(rank, step, i + j);
          const auto row = expected.try_emplace(keys[i], std::array<double, kWidth>{0.25, 0.25, 0.25}).first->second;
          const float value = values[static_cast<std::size_t>(places[i]) * kWidth + j];
          need(std::abs(value - row[j]) < 1e-5, "a value in step " + std::to_string(step));
        }
      const psring_bags bags = bags_of(keys.size());
      ok(psring_rows_add_pooled(rows, &bags, gradients.data()), "add");
      psring_rows_free(rows);
    }
    ok(psring_table_wait(job, 60), "wait for the step before");
    ok(psring_table_end_step(job, kRate), "end");
    for (std::size_t worker = 0; worker < psring_size(psring_world(job)); ++worker) {
      const std::vector<std::uint64_t> theirs = keys_of(worker, step);
      for (std::size_t i = 0; i < theirs.size(); ++i)
        for (std::size_t j = 0; j < kWidth; ++j)
          expected.try_emplace(theirs[i], std::array<double, kWidth>{0.25, 0.25, 0.25}).first->second[j] -=
              kRate * 2 * gradient(worker, step, i + j) / static_cast<double>(psring_size(psring_world(job)));
    }
  }
  ok(psring_rows_wait(next, 60), "the last fetch");
  psring_rows_free(next);
  std::size_t listed = 0;
  std::uint64_t cursor = 0;
  for (;;) {
    std::array<std::uint64_t, 7> keys{};
    std::array<float, 7 * kWidth> values{};
    std::size_t count = 0;
    ok(psring_table_list(table, &cursor, keys.size(), keys.data(), values.data(), &count, 60), "list");
    if (count == 0) break;
    for (std::size_t i = 0; i < count; ++i)
      for (std::size_t j = 0; j < kWidth; ++j)
        need(std::abs(values[i * kWidth + j] - expected.at(keys[i])[j]) < 1e-5, "a listed value");
    listed += count;
  }
  need(listed == expected.size(), "the number of listed rows");
  need(values_of(other, {1}, 6) == std::vector<float>(kWidth, 0.25F), "a table that was never trained");
  ok(psring_table_wait(job, 60), "the end");
  std::array<std::uint64_t, 4> bytes{};
  ok(psring_table_moved(job, bytes.data(), &bytes[1]), "moved");
  ok(psring_table_predict(job, &bytes[2], &bytes[3]), "predict");
  need(bytes[0] == bytes[2] && bytes[1] == bytes[3], "bytes as predicted");
}

}  // namespace

TEST_CASE("rows train as a naive sum does, over each transport") {
  for (const char* transport : {"shm", "tcp"})
    for (const std::size_t workers : {1U, 2U}) {
      INFO(transport << " " << workers);
      CHECK(run(job_with(transport, workers), train) == "");
    }
}

TEST_CASE("under asp a worker's steps are updates at once, and it reads its own writes") {
  for (const char* transport : {"shm", "tcp"}) {
    JobOptions job = job_with(transport);
    job.consistency = "asp";
    const auto body = [](psring_job* own) {
      const std::size_t rank = psring_rank(psring_world(own));
      psring_table* const table = opened(own);
      std::uint64_t step = 0;
      ok(psring_table_start(own, &step), "start");
      // Keys of this worker alone, one of them twice, and one of both.
      const std::vector<std::uint64_t> keys{100 + rank, 200 + rank, 200 + rank, 7};
      const std::vector<float> ones(keys.size() * kWidth, -1);
      for (step = 1; step <= 40 + 20 * rank; ++step) {  // the workers have different numbers of steps
        ok(psring_table_add(table, keys.data(), keys.size(), ones.data()), "add");
        ok(psring_table_wait(own, 60), "wait");
        ok(psring_table_end_step(own, kRate), "end");
        if (step % 10 != 0) continue;
        const std::vector<float> values = values_of(table, {100 + rank, 200 + rank, 100 + rank, 999}, step);
        const float pushed = static_cast<float>(kRate * static_cast<double>(step));
        need(values[0] == 0.25F + pushed && values[kWidth] == 0.25F + 2 * pushed && values[2 * kWidth] == values[0] &&
                 values[3 * kWidth] == 0.25F,
             "own writes in step " + std::to_string(step));
      }
      float done = 0;  // a key counts the workers that have ended
      const std::uint64_t end = 8;
      const std::vector<float> one(kWidth, -2);
      ok(psring_table_add(table, &end, 1, one.data()), "add");
      ok(psring_table_wait(own, 60), "wait");
      ok(psring_table_end_step(own, kRate), "end");
      while (done < 2) done = values_of(table, {end}, step)[0] - 0.25F;
      need(values_of(table, {7}, step)[0] == 0.25F + kRate * 100, "what both have pushed");
      ok(psring_table_wait(own, 60), "wait");
      std::array<std::uint64_t, 4> bytes{};
      ok(psring_table_moved(own, bytes.data(), &bytes[1]), "moved");
      ok(psring_table_predict(own, &bytes[2], &bytes[3]), "predict");
      need(bytes[0] == bytes[2] && bytes[1] == bytes[3], "bytes as predicted");
    };
    INFO(transport);
    CHECK(run(job, body) == "");
  }
}

TEST_CASE("wrong calls of tables are refused, and change nothing") {
  const auto body = [](psring_job* job) {
    psring_table* table = nullptr;
    psring_table_options options = options_of("ads", 4);
    const auto opens = [&](auto&& change, const std::string& text) {
      psring_table_options wrong = options;
      change(wrong);
      refused(psring_table_open(job, &wrong, &table), text);
    };
    std::uint64_t step = 0;
    refused(psring_table_start(job, &step), "no table was opened");
    opens([](auto& o) { o.size = 4; }, "options of 4 bytes");
    opens([](auto& o) { o.size = 12; }, "options of 12 bytes");
    opens([](auto& o) { o.name = nullptr; }, "name is null");
    opens([](auto& o) { o.name = ""; }, "a table without a name");
    opens([](auto& o) { o.width = 0; }, "of width 0");
    opens([](auto& o) { o.type = PSRING_F64; }, "f32 or bf16");
    opens([](auto& o) { o.init = "uniform"; }, "init");
    opens([](auto& o) { o.init = "ones:1"; }, "init");
    refused(psring_table_open(job, nullptr, &table), "options is null");
    refused(psring_table_open(job, &options, nullptr), "table is null");
    ok(psring_table_open(job, &options, &table), "open");
    opens([](auto& /*o*/) {}, "two tables are named 'ads'");
    psring_vector* vector = nullptr;
    const psring_unit unit{"unit", nullptr, 0};
    need(psring_vector_open(job, &unit, 1, &vector) == PSRING_USAGE, "a vector beside tables");
  };
  CHECK(run(job_with("auto", 1), body) == "");
}

TEST_CASE("wrong calls of rows are refused, and change nothing") {
  const auto body = [](psring_job* job) {
    const psring_table_options options = options_of("ads", 4);
    psring_table* table = nullptr;
    ok(psring_table_open(job, &options, &table), "open");
    const std::vector<std::uint64_t> keys{1, 2, 2, 3};
    psring_rows* rows = nullptr;
    refused(psring_table_fetch(table, keys.data(), 4, 0, &rows), "not started");
    refused(psring_table_wait(job, 0), "not started");
    refused(psring_table_end_step(job, 0.1), "not started");
    std::uint64_t step = 0;
    refused(psring_table_start(job, nullptr), "step is null");
    ok(psring_table_start(job, &step), "start");
    refused(psring_table_start(job, &step), "started already");
    psring_table* late = nullptr;
    const psring_table_options other = options_of("late");
    refused(psring_table_open(job, &other, &late), "have started");
    const std::vector<std::uint64_t> many{1, 2, 3, 4, 5};
    refused(psring_table_fetch(nullptr, keys.data(), 4, 0, &rows), "table is null");
    refused(psring_table_fetch(table, nullptr, 4, 0, &rows), "keys is null");
    refused(psring_table_fetch(table, keys.data(), 4, 0, nullptr), "rows is null");
    refused(psring_table_fetch(table, keys.data(), 4, 2, &rows), "in version 2, in step 0");
    refused(psring_table_fetch(table, many.data(), 5, 0, &rows), "5 different keys");
    psring_rows* const ahead = fetched(table, keys, 1);
    psring_bags bags = bags_of(4);
    std::vector<float> memory(4 * kWidth);
    refused(psring_rows_pool(ahead, &bags, memory.data()), "not here");
    need(psring_rows_wait(ahead, 0) == PSRING_PENDING, "rows of the next step");
    rows = fetched(table, keys, 0);
    ok(psring_rows_wait(rows, 60), "wait");
    const auto pools = [&](auto&& change, const std::string& text) {
      psring_bags wrong = bags;
      change(wrong);
      refused(psring_rows_pool(rows, &wrong, memory.data()), text);
      refused(psring_rows_add_pooled(rows, &wrong, memory.data()), text);
    };
    const std::array<std::int64_t, 2> falling{2, 1};
    const std::array<std::int64_t, 2> late_begin{1, 2};
    const std::array<std::int64_t, 4> places{0, 1, 2, 3};
    pools([](auto& b) { b.size = 1; }, "psring_bags of 1 bytes");
    pools([](auto& b) { b.lookups = 3; }, "3 lookups without places");
    pools([](auto& b) { b.bags = 3; }, "3 bags of 4 lookups");
    pools([](auto& b) { b.mean = 2; }, "mean is 2");
    pools([&](auto& b) { b.places = places.data(); }, "row 3 of 3");
    pools([&](auto& b) { b.begins = falling.data(), b.bags = 2; }, "bag 0 begins");
    pools([&](auto& b) { b.begins = late_begin.data(), b.bags = 2; }, "bag 0 begins");
    refused(psring_rows_pool(rows, nullptr, memory.data()), "psring_bags is null");
    refused(psring_rows_pool(rows, &bags, nullptr), "out is null");
    refused(psring_rows_add_pooled(rows, &bags, nullptr), "gradients is null");
    refused(psring_rows_add(rows, nullptr), "gradients is null");
    refused(psring_rows_values(rows, nullptr, nullptr, nullptr), "values is null");
    refused(psring_rows_wait(nullptr, 0), "rows is null");
    refused(psring_table_add(table, nullptr, 1, memory.data()), "keys is null");
    refused(psring_table_add(table, keys.data(), 1, nullptr), "gradients is null");
    refused(psring_table_add(nullptr, keys.data(), 1, memory.data()), "table is null");
    refused(psring_table_add(table, many.data(), 5, memory.data()), "5 different keys");
    refused(psring_rows_wait(rows, -1), "timeout");
    refused(psring_table_end_step(job, -0.1), "the learning rate -0.1");
    refused(psring_table_end_step(nullptr, 0.1), "job is null");
    refused(psring_table_assign(table, keys.data(), 4, memory.data()), "key 2 of table");
    refused(psring_table_assign(table, many.data(), 5, memory.data()), "5 keys");
    refused(psring_table_assign(table, keys.data(), 1, nullptr), "values is null");
    std::uint64_t cursor = 0;
    std::size_t count = 0;
    std::uint64_t key = 0;
    refused(psring_table_list(table, &cursor, 0, &key, memory.data(), &count, 1), "at most 0 rows");
    refused(psring_table_moved(job, nullptr, nullptr), "sent is null");
    const int child = ::fork();
    if (child == 0) ::_exit(psring_table_wait(job, 0) == PSRING_USAGE ? 7 : 1);
    int status = 0;
    ::waitpid(child, &status, 0);
    need(WEXITSTATUS(status) == 7, "a forked process");
    need(values_of(table, {1}, 0) == std::vector<float>(kWidth, 0.25F), "nothing has changed");
    ok(psring_table_wait(job, 60), "idle");
    ok(psring_table_end_step(job, 0.1), "end");
    ok(psring_rows_wait(ahead, 60), "the next step's rows");
    psring_rows_free(ahead);
    psring_rows_free(rows);
    psring_rows_free(nullptr);
  };
  CHECK(run(job_with("auto", 1), body) == "");
}

TEST_CASE("jobs whose options have no effect on tables are refused") {
  const auto says = [](JobOptions job, const std::string& text) {
    CHECK(run(job, [&](psring_job* member) {
            const psring_table_options options = options_of("ads");
            psring_table* table = nullptr;
            refused(psring_table_open(member, &options, &table), text);
          }) == "");
  };
  JobOptions job = job_with("auto", 1);
  job.consistency = "ssp:3";
  says(job, "--consistency ssp:3 is refused");
  job = job_with("auto", 1);
  job.lr = 0.5;
  says(job, "--lr 0.5 is refused");
  says(CJobs::collectives(1), "no servers");
}

TEST_CASE("handles of rows may outlive the job's handle, and rows that nobody waits for may be freed") {
  const CJobs jobs(job_with("auto", 1));
  psring_job* const job = jobs.join(0);
  psring_table* const table = opened(job);
  std::uint64_t step = 0;
  ok(psring_table_start(job, &step), "start");
  psring_rows* const kept = fetched(table, {1, 2, 3}, 0);
  psring_rows_free(fetched(table, {4}, 0));
  psring_rows_free(fetched(table, {5}, 1));
  ok(psring_rows_wait(kept, 60), "wait");
  ok(psring_table_wait(job, 60), "idle");
  ok(psring_leave(job, 60), "leave");
  psring_free(job);
  psring_rows_free(kept);
}

TEST_CASE("functions that are called too late, or twice at once, return a status") {
  const CJobs jobs(job_with("auto", 1));
  psring_job* const job = jobs.join(0);
  psring_table* const table = opened(job);
  std::array<std::atomic<int>, 2> started{};  // OK, refused
  {
    std::vector<std::jthread> threads;
    for (int i = 0; i < 4; ++i)
      threads.emplace_back([&] {
        std::uint64_t step = 0;
        psring_rows* rows = nullptr;
        const psring_status fetch = psring_table_fetch(table, &step, 1, 0, &rows);
        ++started.at(psring_table_start(job, &step) == PSRING_OK ? 0 : 1);
        if (fetch == PSRING_OK) ok(psring_rows_wait(rows, 60), "wait");
        psring_rows_free(rows);
      });
  }
  CHECK(started[0] == 1);
  CHECK(started[1] == 3);
  psring_rows* const kept = fetched(table, {1}, 0);
  psring_rows* const ahead = fetched(table, {1}, 1);
  refused(psring_table_end_step(job, 1e300), "the learning rate 1e+300");
  ok(psring_rows_wait(kept, 60), "wait");
  ok(psring_table_wait(job, 60), "idle");
  ok(psring_table_end_step(job, 1), "end");
  ok(psring_leave(job, 60), "leave, which waits for the last step");
  std::uint64_t number = 0;
  std::size_t count = 0;
  std::array<float, kWidth> values{};
  psring_table* late = nullptr;
  psring_rows* none = nullptr;
  const psring_table_options options = options_of("late");
  refused(psring_table_open(job, &options, &late), "has left");
  refused(psring_table_start(job, &number), "has left");
  refused(psring_table_fetch(table, &number, 1, 1, &none), "has left");
  refused(psring_table_wait(job, 60), "has left");
  refused(psring_table_end_step(job, 1), "has left");
  refused(psring_table_assign(table, &number, 1, values.data()), "has left");
  refused(psring_table_list(table, &number, 1, &number, values.data(), &count, 60), "has left");
  CHECK(psring_rows_wait(ahead, 60) != PSRING_PENDING);
  ok(psring_rows_add(kept, values.data()), "a gradient that nobody gets");
  psring_free(job);
  psring_rows_free(ahead);
  psring_rows_free(kept);
}

TEST_CASE("lists of one table do not disturb each other") {
  constexpr std::size_t kPage = 3;
  const CJobs jobs(job_with("auto", 1));
  psring_job* const job = jobs.join(0);
  psring_table* const table = opened(job);
  std::uint64_t step = 0;
  ok(psring_table_start(job, &step), "start");
  std::vector<std::uint64_t> keys(50);
  for (std::size_t i = 0; i < keys.size(); ++i) keys[i] = i;
  ok(psring_table_assign(table, keys.data(), keys.size(), std::vector<float>(keys.size() * kWidth).data()), "assign");
  ok(psring_table_wait(job, 60), "wait");
  struct List {
    psring_table* table;
    std::uint64_t cursor = 0;
    std::vector<std::uint64_t> found = {};

    /// False once there are no more.
    bool go_on() {
      std::array<std::uint64_t, kPage> page{};
      std::array<float, kPage * kWidth> values{};
      std::size_t count = 0;
      ok(psring_table_list(table, &cursor, kPage, page.data(), values.data(), &count, 60), "list");
      found.insert(found.end(), page.begin(), page.begin() + static_cast<std::ptrdiff_t>(count));
      return count > 0;
    }
    std::vector<std::uint64_t> sorted() {
      std::ranges::sort(found);
      return found;
    }
  };
  List slow{table};
  slow.go_on();
  List fast{table};
  while (fast.go_on()) continue;
  while (slow.go_on()) continue;  // although the other list has ended
  CHECK(fast.sorted() == keys);
  CHECK(slow.sorted() == keys);
  List given_up{table};
  given_up.go_on();
  std::array<std::uint64_t, kPage> page{};
  std::array<float, kPage * kWidth> values{};
  std::size_t count = 0;
  psring_table_list(table, &given_up.cursor, kPage, page.data(), values.data(), &count, 0);
  List anew{table};
  while (anew.go_on()) continue;  // although an answer from another cursor was awaited
  CHECK(anew.sorted() == keys);
  std::vector<List> lists(4, List{table});
  {
    std::vector<std::jthread> threads;
    for (List& list : lists)
      threads.emplace_back([&list] {
        while (list.go_on()) continue;
      });
  }
  for (List& list : lists) CHECK(list.sorted() == keys);
  ok(psring_leave(job, 60), "leave");
  psring_free(job);
}

TEST_CASE("tables may be opened from several threads") {
  const CJobs jobs(job_with("auto", 1));
  psring_job* const job = jobs.join(0);
  constexpr int kEach = 20;
  {
    std::vector<std::jthread> threads;
    for (int thread = 0; thread < 4; ++thread)
      threads.emplace_back([&, thread] {
        for (int i = 0; i < kEach; ++i) opened(job, std::to_string(kEach * thread + i).c_str());
      });
  }
  {
    const psring::MutexLock lock(job->opening);
    CHECK(job->tables.size() == 4 * kEach);
  }
  std::uint64_t step = 0;
  ok(psring_table_start(job, &step), "start");
  ok(psring_leave(job, 60), "leave");
  psring_free(job);
}

TEST_CASE("workers whose tables differ, that go, or that end the job, leave no one waiting") {
  enum class How { wider, renamed, goes, aborts };
  for (const How how : {How::wider, How::renamed, How::goes, How::aborts}) {
    INFO(static_cast<int>(how));
    const CJobs jobs(job_with("auto"));
    std::array<std::string, 2> lines;
    {
      std::vector<std::jthread> threads;
      for (const int rank : {0, 1})
        threads.emplace_back([&, rank] {
          std::string& line = lines.at(static_cast<std::size_t>(rank));
          psring_job* job = nullptr;
          try {
            job = jobs.join(rank);
          } catch (const std::exception& error) {  // the other one has ended the job already
            line = error.what();
            return;
          }
          psring_table_options options = options_of(how == How::renamed && rank == 1 ? "other" : "ads");
          if (how == How::wider) options.width += static_cast<std::size_t>(rank);
          psring_table* table = nullptr;
          std::uint64_t step = 0;
          psring_rows* rows = nullptr;
          psring_status status = psring_table_open(job, &options, &table);
          if (status == PSRING_OK) status = psring_table_start(job, &step);
          if (status == PSRING_OK && rank == 1 && how == How::aborts) status = psring_abort(job, "no more data");
          if (status == PSRING_OK && (rank == 0 || how != How::goes)) {
            status = psring_table_fetch(table, &step, 1, 1, &rows);  // they come once both have ended a step
            if (status == PSRING_OK) status = psring_rows_wait(rows, 60);
          }
          if (status != PSRING_OK && status != PSRING_PENDING) line = psring_last_error();
          psring_rows_free(rows);
          psring_free(job);
        });
    }
    CHECK(!lines[0].empty());
    CHECK((how == How::goes || !lines[1].empty()));
    CHECK(lines[0].find('\n') == std::string::npos);
  }
}
