#include <algorithm>
#include <chrono>
#include <cmath>
#include <fstream>
#include <vector>

#include <catch2/catch.hpp>

#include <psring/bench/predict/closed_forms.h>
#include <psring/bench/predict/fit.h>
#include <psring/bench/predict/fitted_costs.h>
#include <psring/bench/predict/measure.h>
#include <psring/bench/predict/stations.h>
#include <psring/bench/predict/step_model.h>
#include <psring/common/base/text/error.h>
#include <psring/optim/job_optimizer.h>
#include <psring/ring/link/plans.h>
#include <psring/ring/request.h>
#include <psring/tests/support/step_bounds.h>
#include <psring/tests/support/temporary_folder.h>
#include <psring/tests/support/values.h>
#include <psring/worker/model/mlp.h>
#include <psring/worker/servers/server_weights.h>

namespace psring::bench {
namespace {

using Catch::WithinRel;
using namespace test;
using Catch::Contains;

TEST_CASE("BytePS: the optimum lies between all-reduce and one server for each worker") {
  constexpr double kBytes = 1e8;
  constexpr double kRate = 12.5e9;
  for (const double n : {2.0, 4.0, 8.0, 64.0}) {
    // Jiang et al., OSDI 2020, section 3.1: no spare host is the all-reduce's time, n spare hosts the PS's.
    CHECK_THAT(byteps_optimum_s(n, 0, kBytes, kRate), WithinRel(ring_bound_s(n, kBytes, kRate), 1e-12));
    CHECK_THAT(byteps_optimum_s(n, n, kBytes, kRate), WithinRel(server_bound_s(n, n, kBytes, kRate), 1e-12));
    for (double k = 0; k <= n; ++k) {
      const BytePsShares shares = byteps_shares(n, k);
      CHECK_THAT(k * shares.spare_host + n * shares.worker_host, WithinRel(1.0, 1e-12));
      // Both kinds of hosts are busy for the whole time: the section's two balances.
      const double time = byteps_optimum_s(n, k, kBytes, kRate);
      CHECK_THAT(n * shares.spare_host * kBytes / kRate, WithinRel(time, 1e-12));
      CHECK_THAT((1 + (n - 2) * shares.worker_host) * kBytes / kRate, WithinRel(time, 1e-12));
      if (k > 0 && n > 2) CHECK(time < byteps_optimum_s(n, k - 1, kBytes, kRate));
    }
  }
}

TEST_CASE("a pass that was not measured at its size is scaled from the nearest one") {
  const auto model = worker::make_mlp(Spec::parse("--model", "mlp:64-128-32-8"));
  const MeasuredPasses measured(model, 4, DType::f32, 1);
  CHECK(measured.step_s() > 0);
  const LayerPass whole{"Linear", false, 2.0 * 4 * 64 * 128, 4 * (64 + 128) + 64 * 128 + 128, DType::f32};
  LayerPass larger = whole;
  larger.flops *= 1.5;
  REQUIRE(measured.seconds(whole) > 0);
  CHECK_THAT(measured.seconds(larger), WithinRel(1.5 * measured.seconds(whole), 1e-9));
  CHECK_THROWS_WITH(measured.seconds({"Attention", false, 1, 1, DType::f32}),
                    Catch::Contains("compute.Attention.forward.f32 was not measured"));
}

JobOptions mixed_job(std::size_t workers, std::size_t standalone) {
  JobOptions job;
  job.placement = "mixed";
  job.workers = workers;
  job.servers = workers + standalone;
  return job;
}

TEST_CASE("units are cut among mixed servers in the shares of BytePS' optimum") {
  for (const std::size_t n : {2, 4, 7, 64, 4096})
    for (const std::size_t k : {std::size_t{1}, n / 2, n - 1}) {
      const CutWeights weights = worker::server_weights(mixed_job(n, k), 12, 12);
      REQUIRE(weights.owners() == n + k);
      const BytePsShares shares = byteps_shares(static_cast<double>(n), static_cast<double>(k));
      const double all = static_cast<double>(k) * weights.weight(0) + static_cast<double>(n) * weights.weight(k);
      CHECK_THAT(weights.weight(0) / all, WithinRel(shares.spare_host, 1e-12));
      CHECK_THAT(weights.weight(n + k - 1) / all, WithinRel(shares.worker_host, 1e-12));
    }
  CHECK(worker::server_weights(JobOptions(), 4, 4).even());
}

TEST_CASE("no other share of mixed servers makes a step's bytes faster, whatever is pushed and pulled") {
  for (const double n : {2.0, 4.0, 16.0})
    for (double k = 1; k < n; ++k)
      for (const auto& [pushed, pulled] : {std::pair(4.0, 4.0), {4.0, 8.0}, {2.0, 4.0}, {8.0, 4.0}}) {
        if ((n - 1) * std::min(pushed, pulled) < std::max(pushed, pulled)) continue;  // standalone servers cannot help
        // The busiest card, if each worker's host has the share `own`: a worker pushes and answers, a standalone server
        // takes and answers, each way by itself.
        const auto busiest = [&, push = pushed, pull = pulled](double own) {
          const double other = (1 - n * own) / k;
          return std::max({(1 - own) * push + (n - 1) * own * pull, (1 - own) * pull + (n - 1) * own * push,
                           n * other * std::max(push, pull)});
        };
        const CutWeights weights =
            worker::server_weights(mixed_job(static_cast<std::size_t>(n), static_cast<std::size_t>(k)),
                                   static_cast<std::uint64_t>(pushed), static_cast<std::uint64_t>(pulled));
        const double all = k * weights.weight(0) + n * weights.weight(weights.owners() - 1);
        const double chosen = busiest(weights.weight(weights.owners() - 1) / all);
        double least = chosen;
        for (double own = 0; own <= 1 / n; own += 1e-4) least = std::min(least, busiest(own));
        INFO(n << " workers, " << k << " standalone, pushed " << pushed << ", pulled " << pulled);
        CHECK(chosen <= least * (1 + 1e-9));
      }
}

TEST_CASE("few servers are the bottleneck, where a ring is not") {
  constexpr double kBytes = 4e8;
  constexpr double kRate = 1.25e9;
  // Patarasuk, Yuan, JPDC 2009: a ring moves 2 (n-1)/n M for any n. A server's card carries n M / s each way.
  CHECK_THAT(ring_bound_s(1000, kBytes, kRate), WithinRel(2 * 0.999 * kBytes / kRate, 1e-12));
  CHECK_THAT(server_bound_s(16, 1, kBytes, kRate), WithinRel(16 * kBytes / kRate, 1e-12));
  CHECK_THAT(server_bound_s(16, 4, kBytes, kRate), WithinRel(4 * kBytes / kRate, 1e-12));
  CHECK_THAT(server_bound_s(16, 32, kBytes, kRate), WithinRel(kBytes / kRate, 1e-12));
}

TEST_CASE("hybrid sharding moves less between hosts than full sharding") {
  // Zhao et al., PyTorch FSDP, VLDB 2023, section 3.2.2: gradients alone are all-reduced between groups.
  const double hosts = 8;
  CHECK_THAT(hybrid_bytes_per_host(hosts, 100), WithinRel(2 * 7.0 / 8 * 100, 1e-12));
  CHECK_THAT(full_sharding_bytes_per_host(hosts, 100, 100, 2), WithinRel(7.0 / 8 * 300, 1e-12));
}

TEST_CASE("bytes of collectives are those of their plans") {
  ring::LinkOptions options;
  options.tuning = ring::Tuning::built_in();
  const net::LinkSpec link{1e9, std::chrono::microseconds(100)};
  for (const ring::Algorithm* algorithm : ring::kAlgorithms)
    for (const std::size_t n : {2, 4, 8, 16}) {
      options.algorithm = *algorithm;
      constexpr std::size_t kCount = 16 * 4096;
      std::uint64_t sent = 0;  // by all ranks
      for (std::size_t rank = 0; rank < n; ++rank) {
        const ring::LinkPlans plans(options, rank, n);
        ring::Request request;
        request.call.collective = ring::Collective::all_reduce;
        request.call.type = {DType::f32};
        request.call.count = kCount;
        sent += plans.predict(request).sent;
      }
      const ring::Tuning::Row row{n, 0, *algorithm, 262144};
      INFO(algorithm->name << " of " << n);
      CHECK_THAT(all_reduce_time(link, n, 4.0 * kCount, row).moved_bytes, WithinRel(static_cast<double>(sent), 1e-9));
    }
}

TEST_CASE("a fit finds a line, and says when there is none") {
  std::vector<TimedSize> line;
  for (const double size : {1e3, 1e4, 1e5, 1e6}) line.push_back({size, 2e-6 + 3e-9 * size});
  const CostLine found = fit_line(line, "byte");
  CHECK_THAT(found.fixed_s, WithinRel(2e-6, 1e-6));
  CHECK_THAT(found.per_unit_s, WithinRel(3e-9, 1e-6));
  CHECK(found.good());
  const CostLine none = fit_line(std::vector<TimedSize>{{1, 1.0}, {2, 9.0}, {3, 1.0}, {4, 30.0}}, "byte");
  CHECK_FALSE(none.good());
  CHECK(none.fixed_s >= 0);
  CHECK(none.per_unit_s >= 0);
}

TEST_CASE("a fit separates operations and elements") {
  std::vector<TimedSize> points;
  for (const double size : {1e3, 1e4, 1e5, 1e6})
    for (const double elements : {1e2, 1e4}) points.push_back({size, 1e-6 + 2e-10 * size + 5e-9 * elements, elements});
  const CostLine found = fit_line(points, "FLOP");
  CHECK_THAT(found.fixed_s, WithinRel(1e-6, 1e-4));
  CHECK_THAT(found.per_unit_s, WithinRel(2e-10, 1e-4));
  CHECK_THAT(found.per_element_s, WithinRel(5e-9, 1e-4));
  CHECK_THAT(found.seconds(1e5, 1e4), WithinRel(1e-6 + 2e-5 + 5e-5, 1e-4));
  CHECK(found.per_unit_error < 1e-3);
  CHECK(found.most == 1e6);
}

TEST_CASE("the confidence of a fit is that of the noise") {
  // Errors of +-5 % in turn: the slope is known to about 5 % / sqrt(points), times 1.96.
  std::vector<TimedSize> points;
  for (int i = 0; i < 100; ++i) points.push_back({1e6, 1e-3 * (i % 2 == 0 ? 1.05 : 0.95)});
  points.push_back({2e6, 2e-3});
  const CostLine found = fit_line(points, "byte");
  CHECK_THAT(found.seconds(1e6), WithinRel(1e-3, 0.01));
  CHECK_THAT(found.median_error, WithinRel(0.05, 0.1));
  const double without_fixed = 1.96 * 0.05 / std::sqrt(100.0);
  CHECK(found.per_unit_error > 0.5 * without_fixed);
}

TEST_CASE("commands add to a fit, but not to that of another host") {
  const test::TemporaryFolder folder;
  const std::string file = folder.path() + "/fit.json";
  Fit first{.host = "a", .processors = 2};
  first.lines["hop.ring.tcp"] = {.fixed_s = 1, .unit = "byte"};
  first.lines["memory.copy"] = {.per_unit_s = 2, .unit = "byte"};
  first.factors["slowdown"] = 1.5;
  add_to_fit("--fit", file, first);
  Fit second{.host = "a"};
  second.lines["hop.ring.tcp"] = {.fixed_s = 3, .unit = "byte"};
  second.tuning = R"({"all_reduce": [{"ranks": 2, "up_to_bytes": 9, "algorithm": "ring", "segment_bytes": 64}]})";
  add_to_fit("--fit", file, second);
  const Fit both = load_fit("--fit", file);
  CHECK(both.find("hop.ring.tcp")->fixed_s == 3);
  CHECK(both.find("memory.copy")->per_unit_s == 2);
  CHECK(both.factor("slowdown") == 1.5);
  CHECK(both.processors == 2);
  CHECK(ring::Tuning::from_json(both.tuning).rows.front().up_to_bytes == 9);
  CHECK(ring::Tuning::load(file).rows.size() == 1);  // the file is one for --tuning, too
  CHECK_THROWS_AS(add_to_fit("--fit", file, Fit{.host = "b"}), Error);
}

/// A fit with every line that a job may need: line `i` has the fixed time i, and the time 2 i for each unit.
Fit whole_fit() {
  Fit fit{.host = "a", .processors = 2, .factors = {{"slowdown", 1.5}, {"deviation", 0.25}, {"sleep_s", 0.125}}};
  double number = 0;
  for (const char* name : {"hop.ring.tcp",
                           "hop.ring.tcp-encrypted",
                           "hop.ring.shaped",
                           "work.ring.tcp",
                           "work.ring.tcp-encrypted",
                           "work.ring.shaped",
                           "hop.server.shm",
                           "hop.server.tcp-encrypted",
                           "hop.server.shaped",
                           "work.server.shm",
                           "work.server.tcp-encrypted",
                           "work.server.shaped",
                           "batch.server.shm",
                           "batch.server.tcp-encrypted",
                           "batch.server.shaped",
                           "hop.server.tcp",
                           "work.server.tcp",
                           "batch.server.tcp",
                           "server.aggregate",
                           "memory.copy",
                           "update.sgd",
                           "update.sgd-momentum",
                           "update.adam"}) {
    fit.lines[name] = {.fixed_s = ++number, .per_unit_s = 2 * number};
  }
  return fit;
}

/// The costs of a job of four workers, from a fit without one line or factor.
HostCosts costs_without(const std::string& missing, const JobOptions& job, const worker::StrategyKind& kind,
                        const Mesh& mesh) {
  Fit fit = whole_fit();
  fit.lines.erase(missing);
  fit.factors.erase(missing);
  optim::OptimizerRegistry optimizers;
  optim::register_builtin_optimizers(optimizers);
  return fitted_costs(fit, job, kind, *optim::make_optimizer(optimizers, job), mesh);
}

JobOptions four_workers(const std::string& optimizer) {
  JobOptions job;
  job.workers = 4;
  job.optimizer = optimizer;
  return job;
}

const worker::StrategyKind kRing{.ring = true};
const worker::StrategyKind kServers{.servers = true};
const worker::StrategyKind kNeither;

TEST_CASE("costs are those of the job's transport and optimizer") {
  Fit fit = whole_fit();
  fit.lines["work.server.shm"].fixed_s = 40;
  fit.lines["batch.server.shm"].fixed_s = 12.5;
  fit.lines["update.adam"].per_unit_s = 28;
  fit.lines["update.sgd"].per_unit_s = 12;
  fit.lines["update.sgd-momentum"].per_unit_s = 20;
  optim::OptimizerRegistry optimizers;
  optim::register_builtin_optimizers(optimizers);
  const auto costs_of = [&](const JobOptions& job, const worker::StrategyKind& kind, const Mesh& mesh) {
    return fitted_costs(fit, job, kind, *optim::make_optimizer(optimizers, job), mesh);
  };
  const Mesh one_host{.hosts = 1, .workers_per_host = 4};
  const Mesh hosts{.hosts = 4, .workers_per_host = 1};
  JobOptions job = four_workers("adam");
  HostCosts costs = costs_of(job, kServers, one_host);
  CHECK(costs.exchange.hop_s == fit.line("hop.server.shm").fixed_s);
  CHECK_THAT(costs.exchange.wake_s, WithinRel(32, 1e-9));  // alone 8 + 32, in a row 8 + 32 (1 + 1/8) / (2 4)
  CHECK_THAT(costs.exchange.work_s, WithinRel(8, 1e-9));
  CHECK(costs.aggregate_s_per_byte == fit.line("server.aggregate").per_unit_s / 4);
  CHECK(costs.update_s_per_byte == 1);  // adam reads and writes 28 bytes for an element
  CHECK(costs.slowdown == 1.5);
  CHECK(costs.deviation == 0.25);
  CHECK_FALSE(costs.one_host);
  CHECK(costs_of(job, kRing, one_host).collective.hop_s == fit.line("hop.ring.tcp").fixed_s);
  CHECK(costs_of(job, kRing, one_host).within_hop_s == fit.line("hop.server.shm").fixed_s);
  job.encrypt = true;
  CHECK(costs_of(job, kRing, hosts).collective.hop_s == fit.line("hop.ring.tcp-encrypted").fixed_s);
  CHECK(costs_of(job, kServers, hosts).exchange.hop_s == fit.line("hop.server.tcp-encrypted").fixed_s);
  job.link = "1gbit";
  job.optimizer = "sgd";
  costs = costs_of(job, kRing, hosts);
  CHECK(costs.collective.hop_s == fit.line("hop.ring.shaped").fixed_s);
  CHECK(costs.update_s_per_byte == 1);
  CHECK(costs.one_host);
}

TEST_CASE("momentum costs what it does, by whichever name") {
  const Mesh mesh{.hosts = 4, .workers_per_host = 1};
  JobOptions sgd = four_workers("sgd");
  sgd.momentum = 0.9;
  JobOptions none = four_workers("momentum");
  none.momentum = 0;
  const double each = whole_fit().line("update.sgd-momentum").per_unit_s / 20;
  for (const JobOptions& job : {four_workers("momentum"), sgd}) {
    CHECK(costs_without("", job, kRing, mesh).update_s_per_byte == each);
    CHECK(costs_without("", job, kRing, mesh).state_values == 1);
  }
  CHECK(costs_without("", none, kRing, mesh).update_s_per_byte == whole_fit().line("update.sgd").per_unit_s / 12);
}

TEST_CASE("a figure that the fit lacks is an error that names it, unless the job has no use for it") {
  const Mesh within{.hosts = 1, .workers_per_host = 4};
  const Mesh between{.hosts = 4, .workers_per_host = 1};
  JobOptions slept = four_workers("sgd");
  slept.compute = "sleep:1ms";
  JobOptions one_worker;
  one_worker.workers = 1;
  struct Case {
    std::string missing;
    const worker::StrategyKind& needs;
    const worker::StrategyKind& needs_not;
    JobOptions job;
    Mesh mesh;
  };
  const std::vector<Case> cases{{"hop.ring.tcp", kRing, kServers, four_workers("sgd"), between},
                                {"work.ring.tcp", kRing, kServers, four_workers("sgd"), between},
                                {"memory.copy", kRing, kServers, four_workers("sgd"), within},
                                {"hop.server.shm", kServers, kNeither, four_workers("sgd"), within},
                                {"work.server.shm", kServers, kRing, four_workers("sgd"), within},
                                {"batch.server.shm", kServers, kRing, four_workers("sgd"), within}};
  for (const Case& at : cases) {
    INFO(at.missing);
    CHECK_THAT(test::error_of(ErrorKind::usage, [&] { costs_without(at.missing, at.job, at.needs, at.mesh); }),
               Contains("--fit: has no " + at.missing + "; psring fit --out FILE measures it"));
    CHECK_NOTHROW(costs_without(at.missing, at.job, at.needs_not, at.mesh));
  }
  for (const auto& [missing, job, other] :
       {std::tuple("update.sgd-momentum", four_workers("momentum"), four_workers("sgd")),
        {"update.adam", four_workers("adam"), four_workers("sgd")},
        {"server.aggregate", four_workers("sgd"), one_worker},
        {"slowdown", four_workers("sgd"), slept},
        {"deviation", four_workers("sgd"), slept},
        {"sleep_s", slept, four_workers("sgd")}}) {
    CHECK_THAT(test::error_of(ErrorKind::usage,
                              [&, name = missing, with = job] { costs_without(name, with, kRing, between); }),
               Contains(missing));
    CHECK_NOTHROW(costs_without(missing, other, kRing, between));
  }
}

TEST_CASE("the reference machine's table has all that a plan without a fit may need") {
  optim::OptimizerRegistry optimizers;
  optim::register_builtin_optimizers(optimizers);
  for (const std::string& optimizer : optimizers.list())
    for (const bool encrypt : {false, true})
      for (const char* link : {"", "1gbit"})
        for (const Mesh& mesh : {Mesh{.hosts = 1, .workers_per_host = 4}, {.hosts = 4, .workers_per_host = 1}})
          for (const worker::StrategyKind* kind : {&kRing, &kServers}) {
            JobOptions job = four_workers(optimizer);
            job.encrypt = encrypt;
            job.link = link;
            job.compute = "sleep:1ms";
            HostCosts costs = message_costs(reference_fit(), job, *kind, mesh);
            CHECK(std::max(costs.collective.hop_s, costs.exchange.hop_s) > 0);
            CHECK(costs.sleep_s > 0);
            add_update(reference_fit(), job, *optim::make_optimizer(optimizers, job), costs);
            CHECK(costs.update_s_per_byte > 0);
          }
}

TEST_CASE("the time of a message adds to each round, unless the card is busy meanwhile") {
  const net::LinkSpec link{8e9, std::chrono::microseconds(100)};
  const ring::Tuning::Row ring{4, 0, ring::Algorithm::ring, 262144};
  const Wire slow(link, 50e-6, 0);
  // 6 rounds of 1000 bytes: each waits for the delay, and for the message.
  const double quick = all_reduce_time(link, 4, 4000, ring).alone_s;
  CHECK_THAT(all_reduce_time(slow, 4, 4000, ring).alone_s - quick, WithinRel(6 * 50e-6, 1e-9));
  // 6 rounds of 8 MB: the card is the bottleneck, and only the last message shows.
  const double long_one = all_reduce_time(link, 4, 32e6, ring).alone_s;
  CHECK_THAT(all_reduce_time(slow, 4, 32e6, ring).alone_s - long_one, WithinRel(50e-6, 1e-6));
  const CollectiveTime all = all_reduce_time(link, 4, 4 * 262144.0 * 2, ring);
  CHECK(all.messages == 4 * 6 * 2);
  CHECK(all.moved_bytes == 4 * 6 * 2 * 262144.0);
}

TEST_CASE("a fit file is read as it was written, and refused if damaged") {
  const test::TemporaryFolder folder;
  Fit fit{.host = "a", .processor = "p", .processors = 2};
  fit.lines["hop.ring.tcp"] = {.fixed_s = 1e-5, .per_unit_s = 4e-10, .unit = "byte", .points = 5};
  fit.factors["slowdown"] = 1.25;
  const std::string file = folder.path() + "/fit.json";
  std::ofstream(file) << to_json(fit).dump();
  const Fit read = load_fit("--fit", file);
  CHECK(read.find("hop.ring.tcp")->per_unit_s == 4e-10);
  CHECK(read.find("hop.server.shm") == nullptr);
  CHECK(read.factor("slowdown") == 1.25);
  for (const char* text :
       {"", "{}", "[1]", R"({"format": "psring-fit"})", R"({"format": "psring-fit", "version": 1, "lines": {}})"}) {
    std::ofstream(file) << text;
    CHECK_THROWS_AS(load_fit("--fit", file), Error);
  }
}

TEST_CASE("frames wait for the processors that their ranks share") {
  auto rounds = std::make_shared<TimedFrames>();
  rounds->frames = {{.service_s = 1, .latency_s = 2, .first = 1, .count = 1}, {.service_s = 1, .latency_s = 2}};
  rounds->at_once = 1;
  Leg leg{.station = 0, .frames = rounds};
  const auto time = [&] {
    Stations stations(2);
    return stations.end_of(stations.submit(0, {leg}));
  };
  CHECK(time() == 6);
  leg.work = {.station = 1, .service_s = 4, .waits = 0.25};  // 2 a round, which is less than the round's own time
  CHECK(time() == 7);
  leg.work.service_s = 20;  // 10 a round: the second frame comes at 6.5, and its work begins at 11
  CHECK(time() == 11 + 2.5 + 2);
  Stations stations(2);
  const auto other = stations.submit(0, {Leg{.station = 1, .service_s = 5}});
  const auto first = stations.submit(0, {leg});
  CHECK(stations.end_of(other) == 5);
  CHECK(stations.end_of(first) == 15 + 2.5 + 2);  // other work comes before
  CHECK(stations.busy(1) == 25);
}

TEST_CASE("transfers queue at stations") {
  Stations stations(2);
  const Leg out{.station = 0, .service_s = 2};
  const Leg in{.station = 1, .service_s = 3, .streams = true};
  const auto first = stations.submit(0, {out, in});
  const auto second = stations.submit(0, {out, in});
  CHECK(stations.end_of(first) == 3);   // both legs begin at once
  CHECK(stations.end_of(second) == 6);  // behind the first
  CHECK(stations.busy(0) == 4);
}

TEST_CASE("frames of several legs mix at a station") {
  Stations stations(1);
  // Two rounds of one frame each: 1 of service, 2 of latency.
  auto rounds = std::make_shared<TimedFrames>();
  rounds->frames = {{.service_s = 1, .latency_s = 2, .first = 1, .count = 1}, {.service_s = 1, .latency_s = 2}};
  rounds->at_once = 1;
  const Leg leg{.station = 0, .frames = rounds};
  const auto first = stations.submit(0, {leg});
  const auto second = stations.submit(0, {Leg{.station = 0, .service_s = 4}});
  const auto third = stations.submit(20, {leg});
  CHECK(stations.end_of(first) == 8);   // its second frame is ready at 3, behind the second transfer
  CHECK(stations.end_of(second) == 5);  // fills the gap between the first one's frames
  CHECK(stations.end_of(third) == 26);  // alone: two rounds of 3
  CHECK(stations.busy(0) == 8);
}

TEST_CASE("the expected slowest worker") {
  CHECK(expected_slowest(1, 0.1) == 1);
  CHECK(expected_slowest(64, 0) == 1);
  CHECK_THAT(expected_slowest(2, 1), WithinRel(1 + 1 / std::sqrt(M_PI), 0.05));  // exact for 2: 1/sqrt(pi)
  CHECK_THAT(expected_slowest(100, 1), WithinRel(3.5076, 0.01));                 // Harter, 1961
}

TEST_CASE("the expected slowest worker of faults") {
  JobOptions job;
  job.workers = 4;
  CHECK(expected_slowest(job) == 1);
  job.fault = "slow:worker:1=3x";
  CHECK_THAT(expected_slowest(job), WithinRel(3.0, 1e-3));
  job.fault = "jitter:worker:*=20%";
  CHECK_THAT(expected_slowest(job), WithinRel(1 + 0.2 * 3 / 5, 1e-3));  // of n uniform values: 1 + j (n - 1)/(n + 1)
  job.fault = "slow:worker:1=3x jitter:worker:1=20%";
  CHECK_THAT(expected_slowest(job), WithinRel(3.0, 1e-3));
}

TEST_CASE("the time of a vector of any length is known at once") {
  const Wire link(net::LinkSpec{8e9, std::chrono::microseconds(100)});
  constexpr double kSegment = 65536;
  for (const double segments : {1.0, 512.0, 513.0, 1e5, 1e12}) {
    const double bytes = (segments - 1) * kSegment + 4096;
    const CollectiveTime message = message_time(link, bytes, kSegment);
    CHECK(message.messages == segments);
    CHECK_THAT(message.occupies_s, WithinRel((bytes + segments * kHeaderBytes) / 1e9, 1e-9));
    for (const ring::Algorithm algorithm : {ring::Algorithm::ring, ring::Algorithm::exchange,
                                            ring::Algorithm::halving_doubling, ring::Algorithm::doubling}) {
      const ring::Tuning::Row row{.algorithm = algorithm, .segment_bytes = static_cast<std::size_t>(kSegment)};
      const CollectiveTime all = all_reduce_time(link, 4, 4 * bytes, row);
      CHECK(all.messages >= 4 * segments);
      double served = 0;
      if (all.frames)
        for (const TimedFrame& frame : all.frames->frames) served += frame.service_s;
      CHECK_THAT(served, WithinRel(all.occupies_s, 1e-6));
      CHECK(all.frames->frames.size() <= 2048);
    }
  }
}

/// A frame of a chain: it leaves when the one before it has arrived.
std::shared_ptr<const TimedFrames> chain(std::size_t frames, double service_s, double latency_s) {
  TimedFrames made{.frames = {}, .at_once = 1};
  for (std::size_t i = 0; i < frames; ++i)
    made.frames.push_back({service_s, latency_s, i + 1, i + 1 < frames ? std::size_t{1} : std::size_t{0}});
  return std::make_shared<const TimedFrames>(std::move(made));
}

// In step, both rounds of both workers would take 2 * (2 + 2). The second worker's frame leaves while the first one's
// arrives.
TEST_CASE("the messages of a host's workers leave one after the other") {
  Stations stations(2, 2);
  Leg leg{.station = 1, .frames = chain(2, 1, 2)};
  leg.lanes = {.size = 2, .owners = 2};
  const auto both = stations.submit(0, {leg});
  const Moments ends = stations.end_of(both, Moments(0, 2));
  CHECK(ends[0] == 6);
  CHECK(ends[1] == 7);
}

// Workers 0 to 2 wait for worker 3, who waits for nobody. Worker 2 hears of it by way of worker 0.
TEST_CASE("a barrier ends by as many messages after the last call as the distance has bits") {
  const Wire wire(net::LinkSpec{kHeaderBytes * 8, std::chrono::seconds(1)});  // a header takes one second
  Stations stations(1, 4);
  Leg leg{.station = 0, .frames = barrier_time(wire, 4).frames};
  leg.lanes = {.size = 4, .owners = 4, .kind = LaneGroup::Kind::reduces};
  Moments calls(0, 4);
  calls[3] = 10;
  const auto barrier = stations.submit(calls, std::make_shared<const std::vector<Leg>>(std::vector<Leg>{leg}));
  const Moments ends = stations.end_of(barrier, calls);
  CHECK(ends[3] == 10);
  CHECK(ends[0] == 12);
  CHECK(ends[1] == 12);
  CHECK(ends[2] == 14);
  CHECK(barrier_time(wire, 4).alone_s == 4);
  CHECK(barrier_time(wire, 5).alone_s == 6);
  CHECK(barrier_time(wire, 1).alone_s == 0);
}

TEST_CASE("a collective goes up after those that were called before") {
  const auto transfer = [](std::size_t station, double service_s) {
    Leg between{.station = station, .service_s = service_s, .group = 1, .gate = Leg::Gate::between};
    Leg up{.waits_for_call = true, .group = 1, .gate = Leg::Gate::up};
    return std::vector<Leg>{between, up};
  };
  Stations stations(3);
  stations.submit(0, transfer(1, 10));
  const auto quick = stations.submit(0, transfer(2, 1));
  CHECK(stations.end_of(quick) == 10);
  Stations others(3);
  others.submit(0, transfer(1, 10));
  const auto free = others.submit(0, {Leg{.station = 2, .service_s = 1}});
  CHECK(others.end_of(free) == 1);
}

}  // namespace
}  // namespace psring::bench
