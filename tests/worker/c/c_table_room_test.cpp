// A program's tables through the C interface: waits of 0 seconds, and calls that find no room.
#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <numeric>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include <psring/c.h>
#include <psring/tests/support/c_tables.h>

using namespace psring;
using namespace psring::test;

namespace {

/// Calls `wait` with a timeout of 0, again and again, until it does not say PENDING.
psring_status polled(const std::function<psring_status()>& wait) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  psring_status status = PSRING_PENDING;
  while (status == PSRING_PENDING && std::chrono::steady_clock::now() < end) status = wait();
  return status;
}

/// Takes all memory that the job can allocate; the last piece has `last` bytes.
std::vector<void*> take_memory(psring_job* job, std::size_t last) {
  std::vector<void*> taken;
  void* piece = nullptr;
  ok(psring_allocate(job, last, &piece), "allocate");
  for (std::size_t bytes = std::size_t{1} << 30; bytes >= 64; bytes /= 2)
    for (void* memory = nullptr; psring_allocate(job, bytes, &memory) == PSRING_OK;) taken.push_back(memory);
  taken.push_back(piece);
  return taken;
}

}  // namespace

TEST_CASE("a wait of 0 seconds is a test, which becomes true") {
  const std::string transport = GENERATE(as<std::string>(), "shm", "tcp");
  CHECK(run(job_with(transport), [](psring_job* job) {
          psring_table* const table = opened(job);
          std::uint64_t step = 0;
          ok(psring_table_start(job, &step), "start");
          psring_rows* const rows = fetched(table, {1, 2}, 0);
          ok(polled([&] { return psring_rows_wait(rows, 0); }), "rows");
          const std::vector<float> ones(2 * kWidth, 1);
          ok(psring_rows_add(rows, ones.data()), "add");
          ok(polled([&] { return psring_table_wait(job, 0); }), "idle");
          ok(psring_table_end_step(job, kRate), "end");
          ok(polled([&] { return psring_table_wait(job, 0); }), "the step");
          std::uint64_t cursor = 0;
          std::uint64_t key = 0;
          std::size_t count = 0;
          std::array<float, kWidth> values{};
          ok(polled([&] { return psring_table_list(table, &cursor, 1, &key, values.data(), &count, 0); }), "list");
          need(count == 1 && values[0] == 0.25F - static_cast<float>(kRate), "the listed row");
          psring_rows_free(rows);
        }) == "");
}

TEST_CASE("a gradient that finds no room changes nothing, and may come again") {
  const bool pooled = GENERATE(false, true);
  CHECK(run(job_with("auto", 1, 1), [&](psring_job* job) {
          psring_table* const table = opened(job);
          psring_table* const large = opened(job, "large");
          std::uint64_t step = 0;
          ok(psring_table_start(job, &step), "start");
          const std::vector<float> ones(64 * kWidth, 1);
          psring_rows* const rows = fetched(table, {1}, 0);
          ok(psring_rows_wait(rows, 60), "wait");
          const psring_bags bags = bags_of(1);
          const auto add = [&] {
            return pooled ? psring_rows_add_pooled(rows, &bags, ones.data()) : psring_rows_add(rows, ones.data());
          };
          std::vector<void*> taken = take_memory(job, 512);
          refused(add(), "no room");
          for (void* const memory : taken) ok(psring_release(job, memory), "release");
          ok(add(), "once more");
          ok(psring_table_end_step(job, kRate), "end");
          ok(psring_table_wait(job, 60), "the step");
          need(values_of(table, {1}, 1)[0] == 0.25F - static_cast<float>(kRate), "one gradient");
          psring_rows_free(rows);

          std::vector<std::uint64_t> keys(64);
          std::iota(keys.begin(), keys.end(), std::uint64_t{0});
          ok(psring_table_add(table, keys.data(), 1, ones.data()), "of key 0");
          ok(psring_table_add(large, keys.data(), keys.size(), ones.data()), "of the large table");
          taken = take_memory(job, 512);
          ok(psring_release(job, taken.back()), "room for the small table's push alone");
          taken.pop_back();
          refused(psring_table_end_step(job, kRate), "no room");
          ok(psring_table_drop(job), "drop");
          for (void* const memory : taken) ok(psring_release(job, memory), "release");
          ok(psring_table_end_step(job, kRate), "a step of nothing");
          ok(psring_table_wait(job, 60), "the step");
          need(values_of(table, {0}, 2)[0] == 0.25F, "no part of the refused step");
        }) == "");
}

TEST_CASE("the name of a table is UTF-8") {
  CHECK(run(job_with("auto", 1), [](psring_job* job) {
          const psring_table_options options = options_of("caf\xE9");
          psring_table* table = nullptr;
          refused(psring_table_open(job, &options, &table), "'caf\\xe9' is not UTF-8");
          opened(job);
          std::uint64_t step = 0;
          ok(psring_table_start(job, &step), "start");
        }) == "");
}
