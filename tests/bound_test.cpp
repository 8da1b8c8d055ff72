// What bounds a step, from made-up figures: every outcome, and both sides of each of its limits.
#include <catch2/catch.hpp>

#include <psring/cli/bandwidth.h>
#include <psring/cli/bound.h>

using namespace psring::cli;
using Catch::Matchers::Contains;

namespace {

/// Two workers on two processors, which share memory, and compute nearly all the time.
StepFigures computing() {
  return {.step_s = 0.010,
          .exposed_s = 0.001,
          .memory_bytes = 20e6,
          .memory_bytes_per_s = 20e9,
          .threads = 2,
          .processors = 2};
}

/// On cards of 1 Gbit/s, 125 MB a second; a worker moves 5 MB: 40 ms.
StepFigures linked() {
  StepFigures step = computing();
  step.step_s = 0.050;
  step.exposed_s = 0.040;
  step.sockets = true;
  step.link_bytes_per_s = 125e6;
  step.worker_bytes = 5e6;
  return step;
}

std::string line(const StepFigures& step, const Choices& choices = {}) {
  const Bound bound = bound_of(step);
  return because(bound, step) + " → " + advice(bound, step, choices);
}

}  // namespace

TEST_CASE("a step that computes most of the time is bound by that") {
  StepFigures step = computing();
  CHECK(bound_of(step) == Bound::compute);
  CHECK(line(step) == "computes for 9.00 of 10.0 ms → all processors work: more of them, or a smaller --model");
  step.threads = 1;
  CHECK_THAT(line(step, {.one_worker = true}), Contains("uses 1 of 2 processors: more --threads"));
  CHECK_THAT(line(step), Contains("more --workers or --threads"));
  step.exposed_s = 0.005;
  CHECK(bound_of(step) == Bound::compute);
  step.exposed_s = 0.0051;
  CHECK(bound_of(step) == Bound::latency);
}

TEST_CASE("who waits where threads share processors waits for a processor") {
  StepFigures step = computing();
  step.exposed_s = 0.008;
  step.threads = 4;
  CHECK(bound_of(step) == Bound::compute);
  CHECK(line(step, {.servers = 2}) ==
        "waits for 8.00 of 10.0 ms, 4 threads on 2 processors → fewer --workers or --servers, or more processors");
  CHECK_THAT(line(step), Contains("fewer --workers, or more"));
}

TEST_CASE("or for one that another program has") {
  StepFigures step = computing();
  step.exposed_s = 0.008;
  step.others = 0.2;
  CHECK(bound_of(step) == Bound::latency);
  step.others = 1.3;
  CHECK(bound_of(step) == Bound::compute);
  CHECK(line(step) == "waits for 8.00 of 10.0 ms, other programs take 1.3 → end the other programs");
}

TEST_CASE("memory traffic that takes half of a step bounds it, whether it computes or waits") {
  StepFigures step = computing();
  step.memory_bytes = 100e6;  // 5 ms
  CHECK(bound_of(step) == Bound::memory);
  CHECK(line(step) ==
        "moves 100 MB through memory, 5.00 of 10.0 ms at 20 GB/s → a larger --global-batch: the same for "
        "more samples");
  step.exposed_s = 0.009;
  CHECK(bound_of(step) == Bound::memory);
  step.memory_bytes = 99e6;
  CHECK(bound_of(step) == Bound::latency);
  step.memory_bytes_per_s = 0;  // was not measured
  CHECK(bound_of(step) == Bound::latency);
}

TEST_CASE("a link that carries longer than a worker computes bounds a step") {
  StepFigures step = linked();
  CHECK(bound_of(step) == Bound::worker_link);
  CHECK(line(step) == "a worker's link is busy for 40.0 ms of 50.0 (+25 %) → a larger --global-batch: fewer exchanges");
  CHECK_THAT(line(step, {.gathers_twice = true}), Contains("--reshard-after-forward off"));
  step.exposed_s = 0.009;  // it computes for 41 ms, and what the link carries is behind that
  CHECK(bound_of(step) == Bound::compute);
  CHECK(line(step) ==
        "a worker's link is busy for 40.0 ms of 50.0 → all processors work: more of them, or a smaller --model");
}

TEST_CASE("the server's link, where that has more to carry") {
  StepFigures step = linked();
  step.server_bytes = 5.5e6;
  CHECK(bound_of(step) == Bound::server_link);
  CHECK(line(step, {.workers = 4, .servers = 2}) ==
        "a worker's link is busy for 40.0 ms, a server's 44.0 of 50.0 (+14 %) → more --servers");
  CHECK_THAT(line(step, {.workers = 2, .servers = 2}), Contains("--global-batch"));
  step.server_bytes = 5e6;
  CHECK(bound_of(step) == Bound::worker_link);
}

TEST_CASE("a link that has little to carry leaves delays") {
  StepFigures step = linked();
  step.worker_bytes = 3e6;  // 24 of 50 ms
  CHECK(bound_of(step) == Bound::latency);
  CHECK(line(step) ==
        "a worker's link is busy for 24.0 ms of 50.0 → fewer, larger messages: --units block, a larger "
        "--model or --global-batch");
  CHECK_THAT(line(step, {.overlap = false}), Contains("--overlap on"));
  CHECK_THAT(line(step, {.prefetch = 0}), Contains("--prefetch 1"));
  step.threads = 3;
  CHECK(bound_of(step) == Bound::compute);
}

TEST_CASE("waiting for sockets of unknown rate counts for the busier link") {
  StepFigures step = linked();
  step.link_bytes_per_s = 0;
  CHECK(bound_of(step) == Bound::worker_link);
  CHECK_THAT(line(step), Contains("waits for 40.0 of 50.0 ms"));
  step.server_bytes = 6e6;
  CHECK(bound_of(step) == Bound::server_link);
  step.exposed_s = 0.020;
  CHECK(bound_of(step) == Bound::compute);
}

TEST_CASE("each has a name") {
  CHECK(to_string(Bound::compute) == "compute");
  CHECK(to_string(Bound::memory) == "memory");
  CHECK(to_string(Bound::worker_link) == "worker link");
  CHECK(to_string(Bound::server_link) == "server link");
  CHECK(to_string(Bound::latency) == "latency");
}

TEST_CASE("memory is measured once for each power of two") {
  MemoryBandwidth bandwidth(2);
  const double measured = bandwidth.bytes_per_second(3'000'000);
  CHECK(measured > 1e6);
  CHECK(bandwidth.bytes_per_second(4'000'000) == measured);
  CHECK(bandwidth.bytes_per_second(0) > 1e6);
}
