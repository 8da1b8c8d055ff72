#include <catch2/catch.hpp>

#include <psring/bench/compute.h>
#include <psring/common/base/text/error.h>
#include <psring/worker/model/mlp.h>

using namespace psring;

TEST_CASE("a model's rate is measured beside the library's, and is of its size") {
  const Spec spec = Spec::parse("--model", "mlp:64-64-8");
  const bench::ComputeRates rates = bench::measure_compute(worker::make_mlp(spec), 32, 3);
  CHECK(rates.rounds == 3);
  CHECK(rates.step > 0);
  CHECK(rates.ceiling > 0);
  CHECK(rates.samples_per_second > 0);
  CHECK(rates.ratio() < 1.5);  // a step is no faster than its products, but for noise
}
