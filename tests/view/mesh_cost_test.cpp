#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include <catch2/catch.hpp>
#include <fmt/core.h>

#include <psring/bench/predict/step_model.h>
#include <psring/common/base/text/spec.h>
#include <psring/common/net/link_shaping.h>
#include <psring/tests/support/job_names.h>
#include <psring/view/step/simulated_job.h>
#include <psring/worker/model/parallel/schedule.h>

namespace psring::bench {
namespace {

using test::built_in_names;

constexpr const char* kMlp = "mlp:256-256-256-256-10";
constexpr const char* kGpt = "gpt:layers=4,dim=64,heads=4,context=32,vocab=128";

/// A job in a mesh, in which every worker has a host of its own.
struct MeshCase {
  const char* strategy = "ddp";
  std::size_t data = 1;
  std::size_t tensor = 1;
  std::size_t pipeline = 1;
  const char* schedule = "gpipe";
  const char* model = kMlp;
  std::string link = "100mbit,0.2ms";
  double flops_per_second = 1e9;
  std::size_t micro_batches = 4;
  const char* compute = "model";
  std::size_t batch = 0;  ///< of each worker; 0: two samples for each micro-batch

  std::string text() const {
    return fmt::format("{} x{} tp:{} pp:{}:{} m={} b={} {} {} {:g}", strategy, data, tensor, pipeline, schedule,
                       micro_batches, batch, model, link, flops_per_second);
  }
  JobOptions job() const {
    JobOptions job;
    job.strategy = strategy;
    job.model = model;
    job.tensor = tensor;
    job.pipeline = pipeline;
    job.pipeline_schedule = schedule;
    job.workers = data * tensor * pipeline;
    job.accumulate = micro_batches;
    job.global_batch = (batch > 0 ? batch : 2 * micro_batches) * data;
    job.data = fmt::format("synthetic:samples={}", 16 * job.global_batch);  // more than the steps below take
    job.link = link;
    job.compute = compute;
    return job;
  }
};

/// The strategies' real code, in virtual time: the mean over the steps after the first.
double simulated_step_s(const MeshCase& at) {
  const auto time_of = [&](std::uint64_t steps) {
    view::SimulatedJobOptions options;
    options.job = at.job();
    options.job.steps = steps;
    for (std::size_t process = 0; process < view::peers_of(options.job).size(); ++process)
      options.network.processes.push_back(process);
    options.network.link = net::parse_link(at.link);
    options.flops_per_second = at.flops_per_second;
    return seconds(view::simulate(options, built_in_names().of_job()).time);
  };
  constexpr std::uint64_t kFirst = 3;
  constexpr std::uint64_t kMore = 4;
  return (time_of(kFirst + kMore) - time_of(kFirst)) / kMore;
}

StepEstimate predicted(const MeshCase& at) {
  const JobOptions job = at.job();
  const auto kind = built_in_names().workers.strategies.make(Spec::parse("--strategy", job.strategy));
  const std::vector<Workload> stages =
      make_workloads(job, built_in_names().workers, kind->ring ? job.data_workers() : 1,
                     [&](const LayerPass& pass) { return pass.flops / at.flops_per_second; });
  const net::LinkSpec link = net::parse_link(at.link);
  const Mesh mesh{.hosts = job.workers, .workers_per_host = 1, .within = link, .between = link};
  return estimate_step(job, *kind, stages, mesh, {});
}

/// Returns the error of the prediction, relative.
double error_of(const MeshCase& at) { return predicted(at).step_s / simulated_step_s(at) - 1; }

void check_errors(const std::vector<MeshCase>& cases, double most) {
  for (MeshCase at : cases)
    for (const std::string link : {"100mbit,0.2ms", "1gbit,0.2ms"})
      for (const double rate : {2e8, 5e9}) {
        at.link = link;
        at.flops_per_second = rate;
        const double error = error_of(at);
        INFO(fmt::format("{:+.1f} %: {}", 100 * error, at.text()));
        CHECK(std::abs(error) <= most);
      }
}

TEST_CASE("predictions of pipelines agree with the strategies in virtual time") {
  std::vector<MeshCase> cases;
  for (const char* schedule : {"gpipe", "1f1b"})
    for (const std::size_t stages : {2, 4}) {
      cases.push_back({.pipeline = stages, .schedule = schedule});
      cases.push_back({.data = 2, .pipeline = stages, .schedule = schedule, .micro_batches = 8});
      cases.push_back({.strategy = "zero1", .data = 2, .pipeline = stages, .schedule = schedule});
      cases.push_back({.strategy = "zero3", .data = 2, .pipeline = stages, .schedule = schedule});
    }
  check_errors(cases, 0.05);
  // The stages come to the sum of the shared embedding at different times: a part of it is hidden.
  cases.clear();
  for (const char* schedule : {"gpipe", "1f1b"})
    for (const std::size_t stages : {2, 4}) cases.push_back({.pipeline = stages, .schedule = schedule, .model = kGpt});
  check_errors(cases, 0.07);
}

TEST_CASE("predictions of tensor groups agree with the strategies in virtual time") {
  check_errors({{.tensor = 2, .model = kGpt},
                {.tensor = 4, .model = kGpt},
                {.tensor = 2, .model = kMlp},
                {.data = 2, .tensor = 2, .model = kGpt, .micro_batches = 1},
                {.strategy = "zero1", .data = 2, .tensor = 2, .model = kGpt},
                {.tensor = 2, .pipeline = 2, .schedule = "1f1b", .model = kGpt},
                {.strategy = "zero1", .data = 2, .tensor = 2, .pipeline = 2, .model = kGpt}},
               0.05);
}

// The prediction has micro-batches of the mean size: it does not see how a stage waits for the larger ones.
TEST_CASE("predictions of micro-batches of two sizes agree with the strategies in virtual time") {
  check_errors({{.pipeline = 2, .schedule = "gpipe", .micro_batches = 4, .batch = 7},
                {.pipeline = 4, .schedule = "1f1b", .micro_batches = 8, .batch = 19},
                {.tensor = 2, .model = kGpt, .micro_batches = 3, .batch = 8},
                {.data = 2, .pipeline = 2, .schedule = "1f1b", .micro_batches = 3, .batch = 8}},
               0.09);
}

TEST_CASE("the micro-batches of a step compute and send as much as its samples, in whatever number") {
  const auto stages_of = [](std::size_t batch, std::size_t micro_batches) {
    const MeshCase at{.tensor = 2, .pipeline = 2, .model = kGpt, .micro_batches = micro_batches, .batch = batch};
    return make_workloads(at.job(), built_in_names().workers, 1,
                          [](const LayerPass& pass) { return pass.flops / 1e9; });
  };
  const auto sums_of = [](const Workload& work) {
    double sum = 0;
    for (const LayerTime& layer : work.layers)
      for (const auto* vectors : {&layer.forward_sums, &layer.backward_sums})
        for (const double bytes : *vectors) sum += bytes;
    for (const double bytes : work.loss_sums) sum += bytes;
    return sum;
  };
  using Catch::WithinRel;
  for (const std::size_t batch : {8, 15, 16, 23}) {
    const std::vector<Workload> whole = stages_of(batch, 1);
    for (const std::size_t micros : {2, 3, 8}) {
      const std::vector<Workload> cut = stages_of(batch, micros);
      const auto all = [&](double bytes) { return static_cast<double>(micros) * bytes; };
      for (std::size_t stage = 0; stage < whole.size(); ++stage) {
        INFO(fmt::format("batch {}, {} micro-batches, stage {}", batch, micros, stage));
        CHECK_THAT(cut[stage].compute_s(), WithinRel(whole[stage].compute_s(), 1e-12));
        CHECK_THAT(all(sums_of(cut[stage])), WithinRel(sums_of(whole[stage]), 1e-12));
        CHECK_THAT(all(cut[stage].input_bytes), WithinRel(whole[stage].input_bytes, 1e-12));
        CHECK_THAT(all(cut[stage].input_gradient_bytes), WithinRel(whole[stage].input_gradient_bytes, 1e-12));
        CHECK_THAT(all(cut[stage].output_bytes), WithinRel(whole[stage].output_bytes, 1e-12));
        CHECK_THAT(all(cut[stage].output_gradient_bytes), WithinRel(whole[stage].output_gradient_bytes, 1e-12));
      }
    }
  }
}

// Most of many equal micro-batches are counted, and not played: up to four are always played.
TEST_CASE("every further micro-batch takes a step longer by the same time") {
  for (const char* strategy : {"ddp", "zero1", "zero2", "zero3"})
    for (const std::size_t tensor : {1, 2})
      for (const char* link : {"100mbit,0.2ms", "10gbit,20us"}) {
        const auto step_s = [&](std::size_t micro_batches) {
          return predicted({.strategy = strategy,
                            .data = 4,
                            .tensor = tensor,
                            .model = kGpt,
                            .link = link,
                            .micro_batches = micro_batches})
              .step_s;
        };
        INFO(strategy << ", " << tensor << " parts, " << link);
        const double one_more = step_s(4) - step_s(3);
        CHECK(one_more > 0);
        CHECK_THAT(step_s(5) - step_s(4), Catch::WithinRel(one_more, 1e-6));
        CHECK_THAT(step_s(40) - step_s(4), Catch::WithinRel(36 * one_more, 1e-6));
      }
}

TEST_CASE("the bubble of equal stages is that of the formula") {
  for (const char* schedule : {"gpipe", "1f1b"})
    for (const std::size_t stages : {2, 4})
      for (const std::size_t micros : {1, 2, 4, 8}) {
        const MeshCase at{.pipeline = stages,
                          .schedule = schedule,
                          .model = "gelu-mlp:dim=64,layers=4",
                          .link = "1000gbit",
                          .micro_batches = micros,
                          .compute = "sleep:80ms"};
        INFO(at.text());
        CHECK(std::abs(predicted(at).bubble - worker::predicted_bubble(stages, micros)) < 0.02);
      }
}

}  // namespace
}  // namespace psring::bench
