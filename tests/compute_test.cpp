#include <sstream>

#include <catch2/catch.hpp>

#include <psring/bench/compute.h>
#include <psring/common/base/error.h>
#include <psring/worker/model/mlp.h>

using namespace psring;

TEST_CASE("a model's rate is measured beside the library's, and is of its size") {
  const Spec spec = Spec::parse("--model", "mlp:64-64-8");
  const worker::DataShape data = worker::mlp_data_shape(spec);
  const bench::ComputeRates rates = bench::measure_compute(worker::make_mlp(spec, data), data, 32, 3);
  CHECK(rates.rounds == 3);
  CHECK(rates.step > 0);
  CHECK(rates.ceiling > 0);
  CHECK(rates.ratio() < 1.5);  // a step is no faster than its products, but for noise
}

TEST_CASE("the report is one line; a model that it cannot make is a usage error") {
  std::ostringstream out;
  bench::bench_compute(out, "gelu-mlp:dim=64,layers=1", 16);
  CHECK_THAT(out.str(), Catch::StartsWith("gelu-mlp:dim=64,layers=1 batch 16") && Catch::Contains("ratio"));
  CHECK_THROWS_WITH(bench::bench_compute(out, "cnn:3", 16), Catch::Contains("cnn"));
}
