#include <cmath>
#include <cstdlib>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

#include <catch2/catch.hpp>
#include <fmt/core.h>
#include <sys/wait.h>

#include <psring/tests/support/model_runner.h>
#include <psring/tests/support/temporary_folder.h>
#include <psring/worker/model/conv_net.h>
#include <psring/worker/model/mlp.h>

using namespace psring;
using namespace psring::worker;

namespace {

/// PSRING_CONV_REFERENCE is the script with PyTorch's net; see there for the files' formats.
std::vector<float> reference(const std::string& spec, std::size_t batch, const std::vector<float>& values) {
  std::optional<test::TemporaryFolder> folder(std::in_place);
  const std::string in_file = folder->file("in");
  const std::string out_file = folder->file("out");
  test::write_file(in_file, {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)});
  const int status = std::system(
      fmt::format("/usr/bin/python3 '{}' {} {} '{}' '{}'", PSRING_CONV_REFERENCE, spec, batch, in_file, out_file)
          .c_str());
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

void compare(const Model& model, const std::string& spec) {
  constexpr std::size_t kBatch = 16;
  INFO(model.name);
  test::ModelRunner runner(model, kBatch);
  runner.randomise(model.classes, 8);
  const double loss = runner.train(0, kBatch, 1.0F / kBatch, true).loss_sum / kBatch;
  std::vector<float> values = runner.parameters();
  values.insert(values.end(), runner.x().begin(), runner.x().end());
  if (model.classes > 0)
    for (const std::int32_t target : runner.targets()) values.push_back(static_cast<float>(target));
  values.insert(values.end(), runner.target_values().begin(), runner.target_values().end());
  const std::vector<float> expected = reference(spec, kBatch, values);
  const std::vector<float> gradient = runner.gradient();
  REQUIRE(expected.size() == 1 + gradient.size());
  CHECK(loss == Approx(expected[0]).epsilon(1e-5));
  double difference = 0;
  double norm = 0;
  for (std::size_t i = 0; i < gradient.size(); ++i) {
    const double error = static_cast<double>(gradient[i]) - static_cast<double>(expected[i + 1]);
    difference += error * error;
    norm += static_cast<double>(expected[i + 1]) * static_cast<double>(expected[i + 1]);
  }
  INFO("relative difference " << std::sqrt(difference / norm));
  CHECK(std::sqrt(difference) < 1e-5 * std::sqrt(norm));
}

}  // namespace

TEST_CASE("loss and gradients of convolutional nets agree with PyTorch") {
  for (const char* spec : {"1x28x28-16c3-p2-32c3-p2-128-10", "3x9x7-5c5-p2-r3-4c1-6", "2x8x8-8c3-r3-p3-r1-12-4"})
    compare(make_conv_net(Spec::parse("--model", fmt::format("conv:{}", spec))), spec);
}

TEST_CASE("the mean square of the error agrees with PyTorch's MSELoss") {
  compare(make_mse_mlp(Spec::parse("--model", "mse-mlp:9-16-3")), "1x1x9-16-3-mse");
}
