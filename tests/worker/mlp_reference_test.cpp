#include <cmath>
#include <cstdlib>
#include <fstream>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <catch2/catch.hpp>
#include <fmt/core.h>

#include <psring/tests/support/model_runner.h>
#include <psring/tests/support/temporary_folder.h>
#include <psring/worker/model/mlp.h>

using namespace psring;
using namespace psring::worker;

namespace {

/// PSRING_REFERENCE is the script beside this test; see there for the files' formats.
std::vector<float> reference(const std::string& kind, const std::string& widths, std::size_t batch,
                             const std::vector<float>& values) {
  std::optional<test::TemporaryFolder> folder(std::in_place);
  const std::string in_file = folder->file("in");
  const std::string out_file = folder->file("out");
  test::write_file(in_file, {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)});
  const std::string command =
      fmt::format("/usr/bin/python3 '{}' {} {} {} '{}' '{}'", PSRING_REFERENCE, kind, widths, batch, in_file, out_file);
  const int status = std::system(command.c_str());
  std::vector<float> result;
  if (WIFEXITED(status) && WEXITSTATUS(status) == 77) {
    folder.reset();
    std::exit(0);  // the script has printed SKIPPED
  }
  REQUIRE(status == 0);
  std::ifstream out(out_file, std::ios::binary);
  for (float value = 0; out.read(reinterpret_cast<char*>(&value), sizeof value);) result.push_back(value);
  return result;
}

void compare(const Model& model, const std::string& kind, const std::string& widths, std::size_t classes) {
  constexpr std::size_t kBatch = 32;
  test::ModelRunner runner(model, kBatch);
  runner.randomise(classes, 8);
  const double loss = runner.train(0, kBatch, 1.0F / kBatch, true).loss_sum / kBatch;
  std::vector<float> values = runner.parameters();
  values.insert(values.end(), runner.x().begin(), runner.x().end());
  if (classes > 0)
    for (const std::int32_t target : runner.targets()) values.push_back(static_cast<float>(target));
  const std::vector<float> expected = reference(kind, widths, kBatch, values);
  const std::vector<float> gradient = runner.gradient();
  std::vector<float> after;  // buffers, and the loss of an evaluation that reads them
  for (std::size_t layer = 0; layer < model.layers.size(); ++layer)
    for (const auto& buffer : runner.buffers(layer)) after.insert(after.end(), buffer.begin(), buffer.end());
  if (!after.empty()) after.push_back(static_cast<float>(runner.evaluate(0, kBatch).loss_sum / kBatch));
  REQUIRE(expected.size() == 1 + gradient.size() + after.size());
  for (std::size_t i = 0; i < after.size(); ++i)
    CHECK(after[i] == Approx(expected[1 + gradient.size() + i]).epsilon(1e-5).margin(1e-6));
  CHECK(loss == Approx(expected[0]).epsilon(1e-5));
  double difference = 0;
  double norm = 0;
  double largest = 0;
  for (std::size_t i = 0; i < gradient.size(); ++i) {
    const double error = static_cast<double>(gradient[i]) - static_cast<double>(expected[i + 1]);
    difference += error * error;
    norm += static_cast<double>(expected[i + 1]) * static_cast<double>(expected[i + 1]);
    largest = std::max(largest, std::abs(error));
  }
  CHECK(std::sqrt(difference) < 1e-5 * std::sqrt(norm));
  CHECK(largest < 1e-5);
}

}  // namespace

TEST_CASE("loss and gradients agree with an independent implementation") {
  compare(make_mlp(Spec::parse("--model", "mlp:50-40-30-10")), "relu", "50-40-30-10", 10);
  compare(make_bn_mlp(Spec::parse("--model", "bn-mlp:50-40-30-10")), "bn", "50-40-30-10", 10);
  compare(make_gelu_mlp(Spec::parse("--model", "gelu-mlp:dim=24,layers=3")), "gelu", "24-24-24-24", 0);
}
