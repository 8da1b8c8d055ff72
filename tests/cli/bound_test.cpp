// Tests which resource bounds a step, with made-up figures: every outcome, and both sides of each limit.
#include <catch2/catch.hpp>

#include <psring/cli/compare/bound.h>
#include <psring/cli/plan/bandwidth.h>

using namespace psring::cli;
using Catch::Contains;

namespace {

/// Two workers on two processors, which share memory, and compute nearly all the time.
StepFigures computing() {
  return {.step_s = 0.010,
          .exposed_s = 0.001,
          .memory_bytes = 20e6,
          .memory_bytes_per_s = 20e9,
          .processors_used = 1.8,
          .threads = 2,
          .processors = 2};
}

/// A step that its floors were measured for, of 10 ms: the processors are busy for half of it, its worker waits.
StepFigures waiting() {
  StepFigures step = computing();
  step.exposed_s = 0.008;
  step.processors_used = 0.4;
  return step;
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
  step.gpus = true;
  CHECK(line(step) == "computes for 9.00 of 10.0 ms → a GPU sets this time: more of them, or a smaller --model");
  step.exposed_s = 0.005;
  CHECK(bound_of(step) == Bound::compute);
  step.exposed_s = 0.0051;
  CHECK(bound_of(step) == Bound::latency);
  CHECK_THAT(line(step),
             Contains("waits for 5.10 of 10.0 ms; floors in ms: processors 9.00, memory 1.00, compute 4.90 → "));
}

TEST_CASE("who waits where threads share processors waits for a processor") {
  StepFigures step = computing();
  step.exposed_s = 0.008;
  step.threads = 4;
  CHECK(bound_of(step) == Bound::processors);
  CHECK(line(step, {.servers = 2}) ==
        "waits for 8.00 of 10.0 ms; 2 processors work for 9.00 ms of it → fewer --workers or --servers, or more "
        "processors");
  CHECK_THAT(line(step), Contains("fewer --workers, or more"));
  CHECK(not_comparable(step) == "4 threads on 2 processors");
  step.processors_used = 0.99;  // they work for less than half of the step
  CHECK(bound_of(step) == Bound::latency);
  step.processors_used.reset();
  CHECK(bound_of(step) == Bound::latency);
}

TEST_CASE("or for one that another program has") {
  StepFigures step = waiting();
  step.others = 0.2;
  CHECK(bound_of(step) == Bound::latency);
  CHECK(not_comparable(step).empty());
  step.others = 1.3;
  CHECK(bound_of(step) == Bound::processors);
  CHECK(line(step) == "waits for 8.00 of 10.0 ms; 2 processors work for 8.50 ms of it → end the other programs");
  CHECK(not_comparable(step) == "other programs took 1.3 of 2 processors");
  step.others.reset();
  CHECK(bound_of(step) == Bound::latency);
  CHECK(not_comparable(step) == "the load of other programs is not known");
}

TEST_CASE("where the kernel counts the time without a processor, that decides") {
  StepFigures step = computing();
  step.threads = 4;
  step.run_delay = 0.02;  // more threads than processors, of which few run at once
  CHECK(bound_of(step) == Bound::compute);
  CHECK(not_comparable(step) == "4 threads on 2 processors");
  step.threads = 2;
  CHECK(not_comparable(step).empty());
  step.run_delay = 0.07;
  CHECK(bound_of(step) == Bound::compute);
  CHECK(not_comparable(step) == "a worker had no processor for 7 % of its time");
  step.run_delay = 0.3;
  CHECK(bound_of(step) == Bound::processors);
  CHECK_THAT(line(step), Contains("→ more processors"));
}

TEST_CASE("a worker that computes for longer than the others is named, and what does not wait for it") {
  // --compute sleep:50ms --fault slow:worker:1=4x, with four workers and a server on two processors
  StepFigures step{.step_s = 0.2006,
                   .exposed_s = 0.1502,
                   .processors_used = 1.5,
                   .threads = 1,
                   .processors = 2,
                   .run_delay = 0.001,
                   .sleeps = true,
                   .slowest = 1,
                   .slowest_busy_s = 0.2001,
                   .others_busy_s = 0.0501,
                   .others_exposed_s = 0.1501};
  CHECK(bound_of(step) == Bound::slowest_worker);
  CHECK(line(step) ==
        "worker 1 computes for 200.1 ms a step, the others for 50.1; all wait for worker 1 → ps-async, or ps with "
        "--backup-workers 1, does not wait for it");
  CHECK_THAT(line(step, {.bounded_staleness = true}), Contains("→ ps-async does not wait for it"));
  SECTION("other programs do not hide it, unless it has no processor because of them") {
    step.others = 2;
    step.run_delay = 0.2;
    CHECK(bound_of(step) == Bound::slowest_worker);
    step.slowest_delay_s = 0.1;
    CHECK(bound_of(step) == Bound::processors);
    step.run_delay.reset();  // not known: who sleeps needs no processor, who computes may have waited for one
    CHECK(bound_of(step) == Bound::slowest_worker);
    step.sleeps = false;
    CHECK(bound_of(step) == Bound::processors);
  }
  SECTION("a link that takes longer") {
    step.sockets = true;
    step.link_bytes_per_s = 125e6;
    step.worker_bytes = 10e6;  // 80 ms
    CHECK(bound_of(step) == Bound::slowest_worker);
    CHECK_THAT(line(step), Contains("worker 1 computes"));
    step.worker_bytes = 30e6;                        // 240 ms
    CHECK(bound_of(step) == Bound::slowest_worker);  // no step is shorter than what bounds it
    step.step_s = 0.25;
    CHECK(bound_of(step) == Bound::worker_link);
    CHECK_THAT(line(step), Contains("the link alone needs 240.0 ms; the step took 250.0"));
  }
  SECTION("nobody waits for it with asp") {
    step.exposed_s = 0.0001;
    step.others_exposed_s = 0.0001;
    CHECK(bound_of(step) == Bound::compute);
    CHECK(line(step) ==
          "worker 1 computes for 200.1 ms a step, the others for 50.1; nobody waits → --compute sets this time");
    step.run_delay = 0.1;  // of some worker
    CHECK(bound_of(step) == Bound::compute);
    step.slowest_delay_s = 0.1;
    CHECK(bound_of(step) == Bound::processors);
  }
  SECTION("half as long again is one, less is none") {
    step.slowest_busy_s = 0.0752;
    step.step_s = 0.0752;
    step.others_exposed_s = 0.0251;
    step.exposed_s = 0.0251;
    CHECK(bound_of(step) == Bound::slowest_worker);
    step.slowest_busy_s = 0.0750;
    CHECK(bound_of(step) == Bound::compute);
  }
  SECTION("a worker alone is none") {
    step.others_busy_s = 0;
    CHECK(bound_of(step) == Bound::compute);
  }
}

TEST_CASE("workers that wait while a server works are bound by the server") {
  StepFigures step = waiting();
  step.server_busy_s = 0.005;
  CHECK(bound_of(step) == Bound::server);
  CHECK(line(step, {.workers = 4, .servers = 1}) ==
        "waits for 8.00 of 10.0 ms, a server works for 5.00 → more --servers or --server-threads, or a cheaper "
        "--optimizer");
  CHECK_THAT(line(step, {.workers = 2, .servers = 2}), Contains("→ more --server-threads"));
  step.server_busy_s = 0.0049;
  CHECK(bound_of(step) == Bound::latency);
  step.server_busy_s = 0.006;
  step.exposed_s = 0.003;  // workers compute for longer, and the server works meanwhile
  CHECK(bound_of(step) == Bound::compute);
}

TEST_CASE("nothing bounds a step that is longer than the step, or shorter than half of it") {
  StepFigures step = waiting();
  step.sockets = true;
  step.link_bytes_per_s = 125e6;
  const auto all_floors = [&](double seconds) {
    step.worker_bytes = 125e6 * seconds;
    step.server_bytes = 125e6 * seconds;
    step.memory_bytes = 20e9 * seconds;
    step.server_busy_s = seconds;
  };
  for (const double seconds : {0.0049, 0.0101, 1.0}) {
    all_floors(seconds);
    CHECK(bound_of(step) == Bound::latency);
  }
  all_floors(0.0099);
  CHECK(bound_of(step) == Bound::worker_link);
  step.link_bytes_per_s.reset();
  CHECK(bound_of(step) == Bound::server);
  step.server_busy_s.reset();
  CHECK(bound_of(step) == Bound::memory);
  step.memory_bytes = 0;
  CHECK(bound_of(step) == Bound::unknown);  // the rate of the sockets is not known
  for (const Floor& floor : floors_of(step)) CHECK(floor.bound != Bound::worker_link);
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
  step.memory_bytes = 200e6;
  CHECK(bound_of(step) == Bound::memory);
  step.memory_bytes = 201e6;  // longer than the step: caches serve a part of it
  CHECK(bound_of(step) == Bound::latency);
  step.memory_bytes = 99e6;
  CHECK(bound_of(step) == Bound::latency);
  step.memory_bytes = 100e6;
  step.memory_bytes_per_s.reset();  // was not measured
  CHECK(bound_of(step) == Bound::latency);
}

TEST_CASE("a link that carries longer than a worker computes bounds a step") {
  StepFigures step = linked();
  CHECK(bound_of(step) == Bound::worker_link);
  CHECK(line(step) == "the link alone needs 40.0 ms; the step took 50.0 → a larger --global-batch: fewer exchanges");
  CHECK_THAT(line(step, {.gathers_twice = true}), Contains("--reshard-after-forward off"));
  step.exposed_s = 0.009;  // it computes for 41 ms, and what the link carries is behind that
  CHECK(bound_of(step) == Bound::compute);
  CHECK(line(step) == "computes for 41.0 of 50.0 ms → all processors work: more of them, or a smaller --model");
}

TEST_CASE("the server's link, where that has more to carry") {
  StepFigures step = linked();
  step.server_bytes = 5.5e6;
  CHECK(bound_of(step) == Bound::server_link);
  CHECK(line(step, {.workers = 4, .servers = 2}) ==
        "a worker's link alone needs 40.0 ms, a server's 44.0; the step took 50.0 → more --servers");
  CHECK_THAT(line(step, {.workers = 2, .servers = 2}), Contains("--global-batch"));
  step.server_bytes = 5e6;
  CHECK(bound_of(step) == Bound::worker_link);
}

TEST_CASE("a link that has little to carry leaves delays") {
  StepFigures step = linked();
  step.worker_bytes = 3e6;  // 24 of 50 ms
  CHECK(bound_of(step) == Bound::latency);
  CHECK(line(step) ==
        "the link alone needs 24.0 ms; the step took 50.0 → fewer, larger messages: --units block, a larger "
        "--model or --global-batch");
  CHECK_THAT(line(step, {.overlap = false}), Contains("--overlap on"));
  CHECK_THAT(line(step, {.prefetch = 0}), Contains("--prefetch 1"));
  step.threads = 3;
  CHECK(bound_of(step) == Bound::processors);
}

TEST_CASE("waiting for sockets of unknown rate has no known cause") {
  StepFigures step = linked();
  step.link_bytes_per_s.reset();
  step.processors_used = 0.4;
  CHECK(bound_of(step) == Bound::unknown);
  CHECK(line(step) ==
        "waits for 40.0 of 50.0 ms; floors in ms: processors 10.0, memory 1.00, compute 10.0 → --link, which has a "
        "known rate, shows whether it is the network");
  step.sockets = false;
  CHECK(bound_of(step) == Bound::latency);
  step.sockets = true;
  step.exposed_s = 0.020;
  CHECK(bound_of(step) == Bound::compute);
}

TEST_CASE("a sleep is no wait for a processor, however many other programs run") {
  StepFigures step = computing();
  step.sleeps = true;
  step.slowest_busy_s = 0.009;
  step.slowest_delay_s = 0.002;
  step.run_delay = 0.2;
  step.others = 2;
  CHECK(bound_of(step) == Bound::compute);
  step.slowest_delay_s = 0.0045;
  CHECK(bound_of(step) == Bound::processors);
  step.slowest_delay_s = 0.002;
  step.sleeps = false;
  CHECK(bound_of(step) == Bound::processors);
}

TEST_CASE("each has a name") {
  CHECK(to_string(Bound::compute) == "compute");
  CHECK(to_string(Bound::slowest_worker) == "slowest worker");
  CHECK(to_string(Bound::processors) == "processors");
  CHECK(to_string(Bound::memory) == "memory");
  CHECK(to_string(Bound::server) == "server");
  CHECK(to_string(Bound::worker_link) == "worker link");
  CHECK(to_string(Bound::server_link) == "server link");
  CHECK(to_string(Bound::latency) == "latency");
  CHECK(to_string(Bound::unknown) == "unknown");
}

TEST_CASE("memory is measured once for each power of two") {
  MemoryBandwidth bandwidth(2);
  const double measured = bandwidth.bytes_per_second(3'000'000);
  CHECK(measured > 1e6);
  CHECK(bandwidth.bytes_per_second(4'000'000) == measured);
  CHECK(bandwidth.bytes_per_second(0) > 1e6);
}
