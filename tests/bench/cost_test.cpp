#include <algorithm>
#include <chrono>
#include <cmath>
#include <fstream>
#include <vector>

#include <catch2/catch.hpp>

#include <psring/bench/cost/closed_forms.h>
#include <psring/bench/cost/fit.h>
#include <psring/bench/cost/stations.h>
#include <psring/common/base/error.h>
#include <psring/ring/link/plans.h>
#include <psring/ring/request.h>
#include <psring/tests/support/temporary_folder.h>

namespace psring::bench {
namespace {

using Catch::WithinRel;

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
      std::uint64_t most = 0;
      for (std::size_t rank = 0; rank < n; ++rank) {
        const ring::LinkPlans plans(options, rank, n);
        ring::Request request;
        request.call.collective = ring::Collective::all_reduce;
        request.call.type = {DType::f32};
        request.call.count = kCount;
        const ring::Cost cost = plans.predict(request);
        most = std::max({most, cost.sent, cost.received});
      }
      const ring::Tuning::Row row{n, 0, *algorithm, 262144};
      INFO(algorithm->name << " of " << n);
      CHECK_THAT(all_reduce_time(link, n, 4.0 * kCount, row).bytes, WithinRel(static_cast<double>(most), 1e-9));
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

TEST_CASE("a fit file is read as it was written, and refused if damaged") {
  const test::TemporaryFolder folder;
  Fit fit{.host = "a", .processor = "p", .processors = 2};
  fit.lines["link.tcp"] = {.fixed_s = 1e-5, .per_unit_s = 4e-10, .unit = "byte", .points = 5};
  fit.factors["slowdown"] = 1.25;
  const std::string file = folder.path() + "/fit.json";
  std::ofstream(file) << to_json(fit).dump();
  const Fit read = load_fit(file);
  CHECK(read.find("link.tcp")->per_unit_s == 4e-10);
  CHECK(read.find("link.shm") == nullptr);
  CHECK(read.factor("slowdown", 1) == 1.25);
  for (const char* text :
       {"", "{}", "[1]", R"({"format": "psring-fit"})", R"({"format": "psring-fit", "version": 2, "lines": {}})"}) {
    std::ofstream(file) << text;
    CHECK_THROWS_AS(load_fit(file), Error);
  }
}

TEST_CASE("transfers queue at stations") {
  Stations stations(2);
  const Leg out{.station = 0, .service_s = 2};
  const Leg in{.station = 1, .service_s = 2, .streams = true, .after_s = 1, .tail_s = 1};
  const auto first = stations.submit(0, {out, in});
  const auto second = stations.submit(0, {out, in});
  const auto third = stations.submit(0, {out}, second);
  CHECK(stations.end_of(first) == 3);   // cut-through: 1 of delay, 2 of service
  CHECK(stations.end_of(second) == 5);  // behind the first
  CHECK(stations.end_of(third) == 7);   // begins when the second has ended
  CHECK(stations.busy(0) == 6);
}

TEST_CASE("the expected slowest worker") {
  CHECK(expected_slowest(1, 0.1) == 1);
  CHECK(expected_slowest(64, 0) == 1);
  CHECK_THAT(expected_slowest(2, 1), WithinRel(1 + 1 / std::sqrt(M_PI), 0.05));  // exact for 2: 1/sqrt(pi)
  CHECK_THAT(expected_slowest(100, 1), WithinRel(3.5076, 0.01));                 // Harter, 1961
}

}  // namespace
}  // namespace psring::bench
