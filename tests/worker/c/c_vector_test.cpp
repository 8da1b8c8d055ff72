// The vector that a job's servers own, through the C interface: two workers and two servers in this process.
#include <array>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <latch>
#include <limits>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <catch2/catch.hpp>
#include <sys/wait.h>
#include <unistd.h>

#include <psring/c.h>
#include <psring/tests/support/c_jobs.h>

using psring::JobOptions;
using psring::test::CJobs;
using psring::test::need;
using psring::test::ok;
using psring::test::run;

namespace {

constexpr std::size_t kUnits = 2;
constexpr float kRate = 0.5F;

JobOptions job_with(const std::string& transport, std::size_t workers = 2) {
  JobOptions job;
  job.workers = workers;
  job.servers = 2;
  job.transport = transport;
  job.lr = kRate;
  return job;
}

/// A unit of two tensors, and one of a tensor that is not a multiple of the servers.
psring_vector* open_vector(psring_job* job) {
  static const std::array<std::size_t, 2> matrix{30, 20};
  static const std::array<std::size_t, 1> row{20};
  static const std::array<std::size_t, 1> large{70001};
  static const std::array<psring_tensor, 2> first{{{"weight", matrix.data(), 2}, {"bias", row.data(), 1}}};
  static const std::array<psring_tensor, 1> second{{{"table", large.data(), 1}}};
  static const std::array<psring_unit, kUnits> units{{{"fc", first.data(), 2}, {"embedding", second.data(), 1}}};
  psring_vector* vector = nullptr;
  ok(psring_vector_open(job, units.data(), kUnits, &vector), "open");
  return vector;
}

struct Tensor {
  std::span<float> values;
  std::span<float> gradients;
};

Tensor tensor(psring_vector* vector, std::size_t unit, std::size_t index) {
  float* values = nullptr;
  float* gradients = nullptr;
  std::size_t count = 0;
  ok(psring_vector_tensor(vector, unit, index, &values, &gradients, &count), "tensor");
  return {{values, count}, {gradients, count}};
}

std::vector<Tensor> tensors(psring_vector* vector) {
  return {tensor(vector, 0, 0), tensor(vector, 0, 1), tensor(vector, 1, 0)};
}

float initial(std::size_t element) { return static_cast<float>(element % 17) - 8; }

/// Returns what worker `rank` pushes in a step: sums of two are exact, and so is their half.
float gradient(std::size_t rank, std::uint64_t step, std::size_t element) {
  return static_cast<float>((element + 3 * rank + 5 * step) % 8) - 4;
}

float mean_gradient(std::uint64_t step, std::size_t element) {
  return (gradient(0, step, element) + gradient(1, step, element)) / 2;
}

float value_after(std::uint64_t steps, std::size_t element) {
  float value = initial(element);
  for (std::uint64_t step = 0; step < steps; ++step) value -= kRate * mean_gradient(step, element);
  return value;
}

template <class Of>
void fill(std::span<float> values, Of of) {
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = of(i);
}

template <class Of>
void compare(std::span<const float> values, Of of, const char* what) {
  for (std::size_t i = 0; i < values.size(); ++i)
    if (values[i] != of(i)) throw std::runtime_error(std::string(what) + ": element " + std::to_string(i));
}

void meet(psring_job* job) {
  psring_work* work = nullptr;
  ok(psring_barrier(psring_world(job), &work), "barrier");
  ok(psring_wait(work, 60), "barrier");
  psring_work_free(work);
}

/// Opens the vector with the first values at rank 0, and starts it.
psring_vector* started(psring_job* job, std::uint64_t begins_with = 0) {
  psring_vector* const vector = open_vector(job);
  if (psring_rank(psring_world(job)) == 0 && begins_with == 0)
    for (const Tensor& each : tensors(vector)) fill(each.values, initial);
  std::uint64_t version = 99;
  ok(psring_vector_start(vector, &version), "start");
  need(version == begins_with, "the version that the job begins with");
  for (std::size_t unit = 0; unit < kUnits; ++unit) ok(psring_wait_pull(vector, unit, version, 60), "first pull");
  return vector;
}

void train_in_place(psring_job* job) {
  const std::size_t rank = psring_rank(psring_world(job));
  psring_vector* const vector = started(job);
  const auto all = tensors(vector);
  for (const Tensor& each : all) compare(each.values, initial, "first values");
  std::uint64_t predicted_sent = 0;
  std::uint64_t predicted_received = 0;
  for (std::uint64_t step = 0; step < 4; ++step) {
    for (const Tensor& each : all) fill(each.gradients, [&](std::size_t i) { return gradient(rank, step, i); });
    for (std::size_t unit = kUnits; unit-- > 0;) {
      std::size_t count = 0;
      std::uint64_t pushed = 0;
      std::uint64_t pulled = 0;
      ok(psring_vector_unit(vector, unit, &count, &pushed, &pulled), "unit");
      need(pushed == count * sizeof(float) && pulled == pushed, "bytes of a unit");
      predicted_sent += pushed;
      predicted_received += pulled;
      if (step % 2 == 0) {
        ok(psring_push_pull(vector, unit, step), "push_pull");
      } else {
        ok(psring_push(vector, unit, step), "push");
        ok(psring_pull(vector, unit, step + 1), "pull");
      }
    }
    for (std::size_t unit = 0; unit < kUnits; ++unit) {
      ok(psring_wait_pull(vector, unit, step + 1, 60), "wait_pull");
      ok(psring_wait_push(vector, unit, 60), "wait_push");
    }
    for (const Tensor& each : all)
      compare(
          each.values, [&](std::size_t i) { return value_after(step + 1, i); }, "values");
  }
  meet(job);
  std::uint64_t sent = 0;
  std::uint64_t received = 0;
  ok(psring_vector_moved(vector, &sent, &received), "moved");
  need(sent == predicted_sent && received == predicted_received, "bytes that moved");
  ok(psring_vector_finish(vector), "finish");
}

void train_in_passing_memory(psring_job* job) {
  psring_group* const world = psring_world(job);
  const std::size_t rank = psring_rank(world);
  psring_vector* const vector = open_vector(job);
  std::uint64_t version = 99;
  ok(psring_vector_agree(vector, &version), "agree");
  const auto with_memory = [&](std::size_t unit, psring_purpose purpose, const auto& body) {
    std::size_t count = 0;
    std::uint64_t pushed = 0;
    std::uint64_t pulled = 0;
    ok(psring_vector_unit(vector, unit, &count, &pushed, &pulled), "unit");
    void* memory = nullptr;
    ok(psring_allocate_for(job, count * sizeof(float), purpose, &memory), "allocate");
    body(std::span(static_cast<float*>(memory), count));
    ok(psring_release(job, memory), "release");
  };
  if (rank == 0)
    for (std::size_t unit = 0; unit < kUnits; ++unit)
      with_memory(unit, PSRING_PARAMETERS, [&](std::span<float> values) {
        fill(values, initial);
        ok(psring_vector_begin(vector, unit, values.data()), "begin");
        ok(psring_wait_pull(vector, unit, version, 60), "begin's pull");
      });
  meet(job);
  for (std::uint64_t step = version; step < 3; ++step)
    for (std::size_t unit = 0; unit < kUnits; ++unit) {
      with_memory(unit, PSRING_PARAMETERS, [&](std::span<float> values) {
        ok(psring_pull_into(vector, unit, step, values.data()), "pull_into");
        ok(psring_wait_pull(vector, unit, step, 60), "wait_pull");
        compare(
            values, [&](std::size_t i) { return value_after(step, i); }, "values");
      });
      with_memory(unit, PSRING_GRADIENTS, [&](std::span<float> gradients) {
        fill(gradients, [&](std::size_t i) { return gradient(rank, step, i); });
        ok(psring_push_from(vector, unit, step, gradients.data()), "push_from");
        ok(psring_wait_push(vector, unit, 60), "wait_push");
      });
    }
}

void refused(psring_status status) { need(status == PSRING_USAGE && psring_last_error()[0] != '\0', "not refused"); }

}  // namespace

TEST_CASE("servers update a vector with the mean of its gradients, and count its bytes") {
  for (const char* transport : {"auto", "tcp"}) {
    CHECK(run(job_with(transport), train_in_place) == "");
    CHECK(run(job_with(transport), train_in_passing_memory) == "");
  }
}

TEST_CASE("servers that only average bring the mean gradient") {
  JobOptions job = job_with("auto");
  job.optimizer_on = "worker";
  const auto body = [](psring_job* member) {
    const std::size_t rank = psring_rank(psring_world(member));
    psring_vector* const vector = open_vector(member);
    std::uint64_t version = 99;
    ok(psring_vector_start(vector, &version), "start");
    const Tensor bias = tensor(vector, 0, 1);
    for (std::uint64_t step = 0; step < 3; ++step) {
      fill(bias.gradients, [&](std::size_t i) { return gradient(rank, step, i); });
      for (std::size_t unit = 0; unit < kUnits; ++unit) ok(psring_push_pull(vector, unit, step), "push_pull");
      for (std::size_t unit = 0; unit < kUnits; ++unit) ok(psring_wait_pull(vector, unit, step + 1, 60), "wait");
      compare(
          bias.gradients, [&](std::size_t i) { return mean_gradient(step, i); }, "mean");
    }
    float value = 0;
    refused(psring_vector_begin(vector, 0, &value));
    refused(psring_vector_save(vector, 3));
  };
  CHECK(run(job, body) == "");
}

TEST_CASE("without bsp each push is an update, and the final values have all of them") {
  for (const char* consistency : {"asp", "ssp:1"}) {
    JobOptions job = job_with("auto");
    job.consistency = consistency;
    const auto body = [](psring_job* member) {
      const std::size_t rank = psring_rank(psring_world(member));
      psring_vector* const vector = started(member);
      const Tensor bias = tensor(vector, 0, 1);
      for (std::uint64_t step = 0; step < 5; ++step) {
        fill(bias.gradients, [&](std::size_t i) { return gradient(rank, step, i); });
        for (std::size_t unit = 0; unit < kUnits; ++unit) ok(psring_push_pull(vector, unit, step), "push_pull");
        for (std::size_t unit = 0; unit < kUnits; ++unit) ok(psring_wait_pull(vector, unit, 0, 60), "wait");
      }
      double staleness = -1;
      ok(psring_vector_staleness(vector, &staleness), "staleness");
      need(staleness >= 0 && staleness <= 5, "staleness");
      ok(psring_vector_finish(vector), "finish");
      for (std::size_t unit = 0; unit < kUnits; ++unit) ok(psring_pull(vector, unit, PSRING_FINAL), "pull");
      for (std::size_t unit = 0; unit < kUnits; ++unit)
        ok(psring_wait_pull(vector, unit, PSRING_FINAL, 60), "wait for the end");
      compare(
          bias.values,
          [](std::size_t i) {
            float value = initial(i);
            for (std::uint64_t step = 0; step < 5; ++step)
              value -= kRate * (gradient(0, step, i) + gradient(1, step, i));
            return value;
          },
          "final values");
    };
    CHECK(run(job, body) == "");
  }
}

TEST_CASE("a worker that runs ahead has to pull before it pushes") {
  JobOptions ssp = job_with("auto", 1);
  ssp.consistency = "ssp:1";
  CHECK(run(ssp, [](psring_job* job) {
          psring_vector* const vector = started(job);
          ok(psring_push(vector, 0, 0), "push");
          ok(psring_wait_push(vector, 0, 60), "wait");
          ok(psring_pull(vector, 0, 0), "pull");  // an older version: the worker does not learn how far others are
          ok(psring_wait_pull(vector, 0, 0, 60), "wait");
          refused(psring_push(vector, 0, 1));
          ok(psring_pull(vector, 0, 1), "pull");
          refused(psring_push(vector, 0, 1));  // it may not have come
          ok(psring_wait_pull(vector, 0, 1, 60), "wait");
          ok(psring_push(vector, 0, 1), "push");
          ok(psring_wait_push(vector, 0, 60), "wait");
        }) == "");
}

TEST_CASE("a worker sees its own pushes, even if a pull overtakes them") {
  JobOptions job = job_with("tcp", 1);
  job.consistency = "asp";
  CHECK(run(job, [](psring_job* member) {
          const std::array<std::size_t, 1> shape{std::size_t{3} << 20};  // more bytes than may be in flight
          const psring_tensor large{"table", shape.data(), 1};
          const psring_unit unit{"embedding", &large, 1};
          psring_vector* vector = nullptr;
          std::uint64_t version = 0;
          ok(psring_vector_open(member, &unit, 1, &vector), "open");
          const Tensor table = tensor(vector, 0, 0);
          ok(psring_vector_start(vector, &version), "start");
          ok(psring_wait_pull(vector, 0, 0, 60), "first pull");
          fill(table.gradients, [](std::size_t) { return 1.0F; });
          for (std::uint64_t step = 0; step < 3; ++step) {
            ok(psring_push(vector, 0, step), "push");
            ok(psring_pull(vector, 0, step + 1), "pull");
            ok(psring_wait_pull(vector, 0, step + 1, 60), "wait");
            ok(psring_wait_push(vector, 0, 60), "wait");
            compare(
                table.values, [&](std::size_t) { return -kRate * static_cast<float>(step + 1); }, "values");
          }
          ok(psring_push(vector, 0, 3), "push");
          ok(psring_vector_finish(vector), "finish");
          ok(psring_pull(vector, 0, PSRING_FINAL), "pull");
          ok(psring_wait_pull(vector, 0, PSRING_FINAL, 60), "the last values");
          compare(
              table.values, [](std::size_t) { return -4 * kRate; }, "last values");
        }) == "");
}

TEST_CASE("rank 0 gives the first values once, and before they are saved") {
  const psring::test::TemporaryFolder kept;
  JobOptions job = job_with("auto", 1);
  job.checkpoint_every = 1;
  job.checkpoint_dir = kept.file("checkpoints");
  CHECK(run(job, [](psring_job* member) {
          psring_vector* const vector = open_vector(member);
          std::uint64_t version = 0;
          ok(psring_vector_agree(vector, &version), "agree");
          refused(psring_vector_save(vector, 0));
          refused(psring_push(vector, 0, 0));
          refused(psring_pull(vector, 0, 0));
          std::vector<float> values(80'000);
          for (std::size_t unit = 0; unit < kUnits; ++unit) {
            ok(psring_vector_begin(vector, unit, values.data()), "begin");
            refused(psring_vector_begin(vector, unit, values.data()));
            ok(psring_wait_pull(vector, unit, 0, 60), "first values");
            refused(psring_vector_begin(vector, unit, values.data()));
          }
          ok(psring_vector_save(vector, 0), "save");
          ok(psring_vector_save(vector, 0), "save again");
        }) == "");
}

TEST_CASE("a saved vector is complete when rank 0's call returns, and a job resumes with it") {
  const psring::test::TemporaryFolder kept;
  JobOptions job = job_with("auto");
  job.checkpoint_every = 1;
  job.checkpoint_dir = kept.file("checkpoints");
  job.run_id = "run";
  const auto two_steps = [](std::uint64_t first) {
    return [first](psring_job* member) {
      const std::size_t rank = psring_rank(psring_world(member));
      psring_vector* const vector = started(member, first);
      const auto all = tensors(vector);
      for (const Tensor& each : all)
        compare(
            each.values, [&](std::size_t i) { return value_after(first, i); }, "values at the beginning");
      for (std::uint64_t step = first; step < first + 2; ++step) {
        for (const Tensor& each : all) fill(each.gradients, [&](std::size_t i) { return gradient(rank, step, i); });
        for (std::size_t unit = 0; unit < kUnits; ++unit) ok(psring_push_pull(vector, unit, step), "push_pull");
        for (std::size_t unit = 0; unit < kUnits; ++unit) ok(psring_wait_pull(vector, unit, step + 1, 60), "wait");
      }
      meet(member);
      ok(psring_vector_save(vector, first + 2), "save");
    };
  };
  CHECK(run(job, two_steps(0)) == "");
  job.resume = kept.file("checkpoints/step-00000002");
  REQUIRE(std::filesystem::is_directory(job.resume));
  CHECK(run(job, two_steps(2)) == "");
}

TEST_CASE("threads of a worker push and pull units of their own") {
  const auto body = [](psring_job* job) {
    const std::size_t rank = psring_rank(psring_world(job));
    psring_vector* const vector = started(job);
    std::array<std::string, kUnits> errors;
    {
      std::vector<std::jthread> threads;
      for (std::size_t unit = 0; unit < kUnits; ++unit)
        threads.emplace_back([&, unit] {
          try {
            const Tensor own = tensor(vector, unit, 0);
            for (std::uint64_t step = 0; step < 20; ++step) {
              fill(own.gradients, [&](std::size_t i) { return gradient(rank, step, i); });
              ok(psring_push_pull(vector, unit, step), "push_pull");
              std::uint64_t sent = 0;
              std::uint64_t received = 0;
              ok(psring_vector_moved(vector, &sent, &received), "moved");
              ok(psring_wait_pull(vector, unit, step + 1, 60), "wait_pull");
              compare(
                  own.values, [&](std::size_t i) { return value_after(step + 1, i); }, "values");
            }
          } catch (const std::exception& error) {
            errors[unit] = error.what();
          }
        });
    }
    need(errors[0].empty() && errors[1].empty(), (errors[0] + errors[1]).c_str());
  };
  for (const char* transport : {"auto", "tcp"}) CHECK(run(job_with(transport), body) == "");
}

TEST_CASE("wrong calls of a vector are told, and change nothing") {
  const auto body = [](psring_job* job) {
    const std::size_t rank = psring_rank(psring_world(job));
    const std::size_t none = std::numeric_limits<std::size_t>::max();
    float* values = nullptr;
    float* gradients = nullptr;
    std::size_t count = 0;
    std::uint64_t version = 0;
    std::uint64_t bytes = 0;
    psring_vector* vector = nullptr;
    const std::array<std::size_t, 1> shape{4};
    const psring_tensor nameless{nullptr, shape.data(), 1};
    const psring_tensor shapeless{"x", nullptr, 1};
    for (const psring_unit unit : {psring_unit{nullptr, &nameless, 1}, psring_unit{"u", nullptr, 1},
                                   psring_unit{"u", &nameless, 1}, psring_unit{"u", &shapeless, 1}})
      refused(psring_vector_open(job, &unit, 1, &vector));
    const std::array<std::size_t, 2> too_large{std::size_t{1} << 33, std::size_t{1} << 33};
    const psring_tensor huge{"x", too_large.data(), 2};
    const psring_tensor good{"x", shape.data(), 1};
    const psring_tensor other{"y", shape.data(), 1};
    for (const std::array<psring_unit, 2>& units :
         {std::array{psring_unit{"u", &good, 1}, psring_unit{"v", &good, 1}},
          std::array{psring_unit{"u", &good, 1}, psring_unit{"u", &other, 1}},
          std::array{psring_unit{"u", &huge, 1}, psring_unit{"v", &other, 1}}})
      refused(psring_vector_open(job, units.data(), 2, &vector));
    refused(psring_vector_open(job, nullptr, 1, &vector));
    refused(psring_vector_open(nullptr, nullptr, 0, &vector));
    refused(psring_vector_start(nullptr, &version));

    vector = open_vector(job);
    psring_vector* second = nullptr;
    const psring_unit unit{"u", &good, 1};
    refused(psring_vector_open(job, &unit, 1, &second));
    for (const psring_status status :
         {psring_push(vector, 0, 0), psring_pull(vector, 0, 0), psring_push_pull(vector, 0, 0),
          psring_push_from(vector, 0, 0, tensor(vector, 0, 0).gradients.data()), psring_wait_pull(vector, 0, 0, 0),
          psring_wait_push(vector, 0, 0), psring_vector_finish(vector)})
      refused(status);  // before the start
    refused(psring_vector_tensor(vector, kUnits, 0, &values, &gradients, &count));
    refused(psring_vector_tensor(vector, 0, 2, &values, &gradients, &count));
    refused(psring_vector_tensor(vector, 0, none, &values, &gradients, &count));
    refused(psring_vector_tensor(vector, 0, 0, nullptr, &gradients, &count));
    refused(psring_vector_unit(vector, none, &count, &bytes, &bytes));
    refused(psring_vector_unit(vector, 0, &count, nullptr, &bytes));
    refused(psring_vector_start(vector, nullptr));

    const Tensor bias = tensor(vector, 0, 1);
    if (rank == 0)
      for (const Tensor& each : tensors(vector)) fill(each.values, initial);
    ok(psring_vector_start(vector, &version), "start");
    for (std::size_t each = 0; each < kUnits; ++each) ok(psring_wait_pull(vector, each, 0, 60), "first pull");
    refused(psring_vector_start(vector, &version));
    refused(psring_vector_agree(vector, &version));
    refused(psring_vector_begin(vector, 0, nullptr));
    refused(psring_push(vector, kUnits, 0));
    refused(psring_push(vector, 0, 1));  // step 0 comes first
    refused(psring_push(vector, 0, none));
    refused(psring_push_from(vector, 0, 0, nullptr));
    refused(psring_pull_into(vector, 0, 0, nullptr));
    refused(psring_pull(vector, none, 0));
    refused(psring_pull(vector, 0, 2));  // nothing leads to it
    refused(psring_wait_pull(vector, 0, 0, -0.5));
    refused(psring_wait_pull(vector, 0, 0, std::numeric_limits<double>::quiet_NaN()));
    refused(psring_wait_push(vector, kUnits, 0));
    refused(psring_vector_moved(vector, nullptr, &bytes));
    refused(psring_vector_staleness(vector, nullptr));
    refused(psring_vector_save(vector, 0));  // the job saves no checkpoints

    fill(bias.gradients, [&](std::size_t i) { return gradient(rank, 0, i); });
    ok(psring_push_pull(vector, 0, 0), "push_pull");
    refused(psring_push_pull(vector, 0, 0));  // each unit once in a step
    refused(psring_push(vector, 0, 0));
    refused(psring_pull(vector, 0, 1));  // its pull is in flight
    ok(psring_push_pull(vector, 1, 0), "push_pull");
    for (std::size_t each = 0; each < kUnits; ++each) ok(psring_wait_pull(vector, each, 1, 60), "wait");
    compare(
        bias.values, [](std::size_t i) { return value_after(1, i); }, "values");
  };
  CHECK(run(job_with("auto"), body) == "");
}

TEST_CASE("a job without servers has no vector, and a forked process may not use one") {
  CHECK(run(CJobs::collectives(1), [](psring_job* job) {
          const std::array<std::size_t, 1> shape{4};
          const psring_tensor tensor{"x", shape.data(), 1};
          const psring_unit unit{"u", &tensor, 1};
          psring_vector* vector = nullptr;
          refused(psring_vector_open(job, &unit, 1, &vector));
        }) == "");
  CHECK(run(job_with("auto", 1), [](psring_job* job) {
          psring_vector* const vector = started(job);
          const pid_t child = ::fork();
          if (child == 0) {
            const bool is_refused =
                psring_push(vector, 0, 0) == PSRING_USAGE && psring_wait_pull(vector, 0, 0, 0) == PSRING_USAGE;
            ::_exit(is_refused ? 0 : 1);
          }
          int status = -1;
          ::waitpid(child, &status, 0);
          need(status == 0, "the child's calls were not refused");
        }) == "");
}

TEST_CASE("a worker that is lost ends the others' waits for values") {
  const CJobs jobs(job_with("auto"));
  psring_job* second = nullptr;
  std::jthread joins([&] { second = jobs.join(1); });
  psring_job* const first = jobs.join(0);
  joins.join();
  std::latch begun(2);
  std::jthread other([&] {
    psring_vector* const vector = started(second);
    ok(psring_push(vector, 0, 0), "push");
    begun.arrive_and_wait();
    psring_free(second);  // without leaving
  });
  psring_vector* const vector = started(first);
  begun.arrive_and_wait();
  other.join();
  CHECK(psring_push_pull(vector, 0, 0) != PSRING_PENDING);
  CHECK(psring_push_pull(vector, 1, 0) != PSRING_PENDING);
  CHECK(psring_wait_pull(vector, 1, 1, 60) == PSRING_PEER_LOST);  // unit 1 of the lost worker never came
  CHECK(std::string(psring_last_error()).find("worker 1") != std::string::npos);
  psring_free(first);
}
