// The rules of rows beside PyTorch's sparse optimizers and NumPy, fed the same coalesced gradients for 50 steps.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <numeric>
#include <string>
#include <vector>

#include <catch2/catch.hpp>
#include <fmt/format.h>

#include <psring/common/base/rng.h>
#include <psring/optim/rows/row_hash.h>
#include <psring/optim/rows/table_rows.h>
#include <psring/tests/support/temporary_folder.h>

using namespace psring;
using namespace psring::optim;

namespace {

constexpr std::size_t kWidth = 16;
constexpr std::size_t kRows = 40;
constexpr std::size_t kSteps = 50;

struct Case {
  std::string rule;
  float lr;
  double tolerance;
};

/// The values of all rows after the last step: psring's, and those of PSRING_ROW_RULES.
struct Results {
  std::vector<float> own;
  std::vector<double> expected;
};

Results run(const Case& each) {
  const auto rule = make_row_rule(Spec::parse("--table-optimizer", each.rule));
  MemoryLedger ledger;
  TableRows table({.number = 0,
                   .width = kWidth,
                   .init = {Init::Kind::uniform, 0.5F},
                   .seed = 7,
                   .rule = rule.get(),
                   .most_bytes = std::size_t{64} << 20},
                  ledger);
  std::vector<std::uint64_t> keys(kRows);
  std::iota(keys.begin(), keys.end(), 1);
  for (std::uint64_t& key : keys) key = mix64(key);
  std::sort(keys.begin(), keys.end());
  Results results{.own = std::vector<float>(kRows * kWidth), .expected = std::vector<double>(kRows * kWidth)};
  table.read(keys, results.own);
  std::vector<float> script = results.own;
  const CounterRng rng({.seed = 11});
  std::size_t drawn = 0;
  for (std::size_t step = 0; step < kSteps; ++step) {
    std::vector<std::uint64_t> own;
    std::vector<float> gradients;
    for (std::size_t row = 0; row < kRows; ++row) {
      if (rng.bits(drawn++) % 3 != 0) continue;
      own.push_back(keys[row]);
      script.push_back(static_cast<float>(row));
    }
    script.push_back(-1);
    for (std::size_t i = 0; i < own.size() * kWidth; ++i) gradients.push_back(0.1F * rng.normal(100'000 + drawn++));
    script.insert(script.end(), gradients.begin(), gradients.end());
    const std::vector<RowGradients> worker{{own, gradients}};
    table.update({.count = step + 1, .lr = each.lr}, std::span(&worker, 1), 1);
  }
  table.read(keys, results.own);
  const test::TemporaryFolder folder;
  test::write_file(folder.file("in"), {reinterpret_cast<const char*>(script.data()), script.size() * sizeof(float)});
  const std::string command = fmt::format("/usr/bin/python3 '{}' {} {} {} {} {} '{}' '{}'", PSRING_ROW_RULES,
                                          each.rule.substr(0, each.rule.find(':')), each.lr, kWidth, kRows, kSteps,
                                          folder.file("in"), folder.file("out"));
  const int status = std::system(command.c_str());
  if (WIFEXITED(status) && WEXITSTATUS(status) == 77) return {};
  REQUIRE(status == 0);
  std::ifstream out(folder.file("out"), std::ios::binary);
  REQUIRE(out.read(reinterpret_cast<char*>(results.expected.data()),
                   static_cast<std::streamsize>(results.expected.size() * sizeof(double))));
  return results;
}

}  // namespace

TEST_CASE("rules agree with PyTorch's sparse optimizers, and with NumPy in f64") {
  const Case each = GENERATE(values<Case>({{"sgd", 0.1F, 0},
                                           {"adagrad", 0.05F, 3e-7},
                                           {"adam", 0.01F, 3e-7},
                                           {"rowwise-adagrad", 0.05F, 1e-6},
                                           {"ftrl:l1=0.001,l2=0.01", 0.1F, 1e-6}}));
  CAPTURE(each.rule);
  const Results results = run(each);
  double largest = 0;
  for (std::size_t i = 0; i < results.own.size(); ++i)
    largest = std::max(largest, std::fabs(static_cast<double>(results.own[i]) - results.expected[i]));
  CAPTURE(largest);
  CHECK(largest <= each.tolerance);
}
