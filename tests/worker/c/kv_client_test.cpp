// Programs that push and pull keys, with handles of their own: workers and servers in this process, beside a map.
#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <catch2/catch.hpp>

#include <psring/common/base/rng.h>
#include <psring/common/base/text/error.h>
#include <psring/optim/rows/kv_handle.h>
#include <psring/tests/support/c_jobs.h>
#include <psring/worker/kv_client.h>

using psring::JobOptions;
using psring::optim::kv_handle;
using psring::test::CJobs;
using psring::worker::KvClient;

namespace {

constexpr std::size_t kWidth = 2;

/// Sums what is pushed, times the rate; `last` keeps the newest push and counts them, and `broken` throws.
void add_handles(psring::optim::OptimizerRegistry& registry) {
  registry.rows.add("sum", "adds", kv_handle({.push = [](auto values, auto /*state*/, auto pushed, float lr) {
                      for (std::size_t i = 0; i < values.size(); ++i) values[i] += lr * pushed[i];
                    }}));
  registry.rows.add("last", "keeps the newest",
                    kv_handle({.push =
                                   [](auto values, auto state, auto pushed, float /*lr*/) {
                                     values[0] = pushed[0];
                                     values[1] = state[0] += 1;
                                   },
                               .state = 1}));
  registry.rows.add("broken", "throws", kv_handle({.push = [](auto...) { throw std::runtime_error("on purpose"); }}));
}

JobOptions job_with(const std::string& handle, std::size_t workers, const std::string& transport = "auto") {
  JobOptions job;
  job.workers = workers;
  job.servers = 2;
  job.transport = transport;
  job.consistency = "asp";
  job.table_optimizer = handle;
  return job;
}

/// Runs a worker in each thread; returns their errors.
std::string run(const JobOptions& options, const std::function<void(KvClient&)>& body,
                const KvClient::Options& values = {.width = kWidth}) {
  const CJobs jobs(options, add_handles);
  std::vector<std::string> errors(options.workers);
  {
    std::vector<std::jthread> threads;
    for (std::uint32_t rank = 0; rank < options.workers; ++rank)
      threads.emplace_back([&, rank] {
        try {
          KvClient client(jobs.role(rank), values);
          body(client);
          client.finish();
        } catch (const std::exception& error) {
          errors[rank] = error.what();
        }
      });
  }
  std::string all;
  for (const std::string& error : errors) all += error;
  return all;
}

void need(bool holds, const std::string& what) {
  if (!holds) throw std::runtime_error(what);
}

std::vector<std::uint64_t> keys_of(std::size_t rank, std::uint32_t turn) {
  const psring::CounterRng rng({.seed = 3, .step = turn, .rank = static_cast<std::uint16_t>(rank)});
  std::vector<std::uint64_t> keys(turn % 5 == 4 ? 0 : 50);
  for (std::size_t i = 0; i < keys.size(); ++i)  // each rank's own
    keys[i] = static_cast<std::uint64_t>(rng.block(static_cast<std::uint32_t>(i))[0] % 40) << 32 | rank;
  return keys;
}

}  // namespace

TEST_CASE("a worker reads what it has pushed, over each transport") {
  for (const char* transport : {"shm", "tcp"}) {
    INFO(transport);
    const auto body = [](KvClient& client) {
      std::map<std::uint64_t, float> sums;
      KvClient::Pull begun = nullptr;
      std::vector<std::uint64_t> asked;
      for (std::uint32_t turn = 0; turn < 20; ++turn) {
        const std::vector<std::uint64_t> keys = keys_of(client.rank(), turn);
        std::vector<float> values;
        for (std::size_t i = 0; i < keys.size(); ++i) {
          values.insert(values.end(), {static_cast<float>(i), 1});
          sums[keys[i]] += 2 * static_cast<float>(i);
        }
        client.push(keys, values, 2);
        asked = keys;
        asked.push_back(~std::uint64_t{0});  // nobody pushes it
        begun = client.begin_pull(asked);
        std::vector<float> pulled(asked.size() * kWidth, -1);
        client.end_pull(begun, pulled);
        for (std::size_t i = 0; i < keys.size(); ++i) need(pulled[i * kWidth] == 7 + sums[keys[i]], "a sum");
        need(pulled.back() == 7, "the initial value");
      }
    };
    CHECK(run(job_with("sum", 2, transport), body, {.width = kWidth, .init = "constant:7"}) == "");
  }
}

TEST_CASE("workers push to the same keys") {
  constexpr std::size_t kWorkers = 3;
  const std::vector<std::uint64_t> keys{1, 2, 0xFFFFFFFFFFFFFFFFU};
  const auto body = [&](KvClient& client) {
    for (int turn = 0; turn < 30; ++turn) client.push(keys, std::vector<float>(keys.size() * kWidth, 1));
    client.push(std::vector<std::uint64_t>{9}, std::vector<float>{1, 0});
    std::vector<float> ended(kWidth);
    while (ended[0] < kWorkers) client.pull(std::vector<std::uint64_t>{9}, ended);
    std::vector<float> values(keys.size() * kWidth);
    client.pull(keys, values);
    need(values == std::vector<float>(keys.size() * kWidth, 30 * kWorkers), "the sum of all");
  };
  CHECK(run(job_with("sum", kWorkers), body) == "");
}

TEST_CASE("under bsp workers push together, and the handle gets the mean") {
  JobOptions job = job_with("sum", 2);
  job.consistency = "bsp";
  const auto body = [](KvClient& client) {
    const bool first = client.rank() == 0;
    std::vector<float> values(kWidth);
    for (float turn = 1; turn < 9; ++turn) {
      if (first)
        client.push(std::vector<std::uint64_t>{5}, std::vector<float>{4, 2});
      else
        client.push({}, {});
      client.pull(std::vector<std::uint64_t>{5}, values);
      need(values == std::vector<float>{2 * turn, turn}, "the mean of two");
    }
  };
  CHECK(run(job, body) == "");
}

TEST_CASE("a handle has state of its own") {
  const auto body = [](KvClient& client) {
    std::vector<float> values(kWidth);
    for (float turn = 1; turn < 6; ++turn) {
      client.push(std::vector<std::uint64_t>{5}, std::vector<float>{10 * turn, 0});
      client.pull(std::vector<std::uint64_t>{5}, values);
      need(values == std::vector<float>{10 * turn, turn}, "the newest value and the number of pushes");
    }
  };
  CHECK(run(job_with("last", 1), body) == "");
}

TEST_CASE("wrong calls of a KvClient are refused in one line") {
  const auto body = [](KvClient& client) {
    const auto refused = [](const std::function<void()>& call) -> std::string {
      try {
        call();
      } catch (const psring::Error& error) {
        return error.kind() == psring::ErrorKind::usage ? error.what() : "another error";
      }
      return "taken";
    };
    const std::vector<std::uint64_t> keys{1, 2, 3};
    std::vector<float> values(3 * kWidth);
    CHECK_THAT(refused([&] { client.push(keys, std::vector<float>(5)); }), Catch::Contains("5 values for 3 keys of 2"));
    CHECK_THAT(refused([&] { client.push(keys, values); }), Catch::Contains("3 different keys"));
    CHECK_THAT(refused([&] { client.pull(keys, values); }), Catch::Contains("3 different keys"));
    CHECK_THAT(refused([&] { client.pull(std::vector<std::uint64_t>{1}, values); }), Catch::Contains("room for 6"));
    CHECK_THAT(refused([&] { client.push({}, {}, -1); }), Catch::Contains("learning rate -1"));
    const std::vector<std::uint64_t> one{1};
    std::vector<float> pulled(kWidth);
    CHECK_THAT(refused([&] { client.push(one, std::vector<float>{5, 5}, -1); }), Catch::Contains("learning rate -1"));
    client.push(one, std::vector<float>{1, 1});
    client.pull(one, pulled);
    CHECK(pulled == std::vector<float>{1, 1});  // without what was refused
  };
  CHECK(run(job_with("sum", 1), body, {.width = kWidth, .most_keys = 2}) == "");
  const psring::RoleOptions nowhere{.endpoint = "127.0.0.1:1", .key_file = "none"};
  CHECK_THROWS_WITH(KvClient(nowhere, {.width = 0}), Catch::Contains("of 0 values"));
  CHECK_THROWS_WITH(KvClient(nowhere, {.most_keys = 0}), Catch::Contains("0 keys"));
  CHECK_THROWS_WITH(KvClient(nowhere, {.init = "often"}), Catch::Contains("KvClient: init"));
  CHECK_THROWS_WITH(kv_handle({}), "kv_handle: a handle without push");
  // The servers end the job before they wait for a worker.
  CHECK_THAT(CJobs(job_with("none", 1), add_handles).cause(), Catch::Contains("unknown name 'none'; known: "));
  const auto pushes = [](KvClient& client) {
    client.push(std::vector<std::uint64_t>{1}, std::vector<float>(kWidth));
    client.wait();
  };
  CHECK_THAT(run(job_with("broken", 1), pushes),
             Catch::Contains("handle 'broken' threw std::runtime_error: on purpose"));
  JobOptions bounded = job_with("sum", 1);
  bounded.consistency = "ssp:2";
  CHECK_THAT(run(bounded, [](KvClient&) {}), Catch::Contains("--consistency ssp:2 is refused"));
}
