#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <catch2/catch.hpp>
#include <sys/wait.h>
#include <unistd.h>

#include <psring/common/base/text/spec.h>
#include <psring/tests/support/run_layers.h>
#include <psring/worker/model/gpt.h>

using namespace psring;
using namespace psring::worker;

namespace {

/// A file that goes with its scope.
struct Scratch {
  std::filesystem::path path =
      std::filesystem::temp_directory_path() / ("psring-gpt-reference-" + std::to_string(::getpid()));
  std::string out() const { return path.string() + ".out"; }
  ~Scratch() {
    std::filesystem::remove(path);
    std::filesystem::remove(out());
  }
};

template <class T>
void write(std::ofstream& file, const std::vector<T>& values) {
  file.write(reinterpret_cast<const char*>(values.data()), static_cast<std::streamsize>(values.size() * sizeof(T)));
}

std::vector<double> read(std::ifstream& file, std::size_t n) {
  std::vector<double> values(n);
  file.read(reinterpret_cast<char*>(values.data()), static_cast<std::streamsize>(n * sizeof(double)));
  REQUIRE(file);
  return values;
}

void compare(const std::string& text, std::size_t batch) {
  INFO(text);
  const GptShape shape = parse_gpt(Spec::parse("--model", text));
  const Model model = make_gpt(Spec::parse("--model", text));
  std::vector<const Layer*> layers;
  for (const auto& layer : model.layers) layers.push_back(layer.get());
  test::LayerStack stack(layers, {batch, shape.context}, 17);
  const CounterRng rng({.seed = 5});
  const std::size_t rows = batch * shape.context;
  std::vector<std::int32_t> tokens(rows), targets(rows);
  for (std::size_t i = 0; i < rows; ++i) {
    tokens[i] = static_cast<std::int32_t>(rng.bits(i) % shape.vocab);
    targets[i] = static_cast<std::int32_t>(rng.bits(rows + i) % shape.vocab);
    stack.input()[i] = static_cast<float>(tokens[i]);
  }

  const Scratch scratch;
  {
    std::ofstream file(scratch.path, std::ios::binary);
    file << shape.layers << ' ' << shape.dim << ' ' << shape.heads << ' ' << shape.context << ' ' << shape.vocab << ' '
         << batch << '\n';
    for (const test::Parameter& parameter : stack.parameters()) write(file, parameter.value);
    write(file, tokens);
    write(file, targets);
    REQUIRE(file);
  }
  const std::string command = "/usr/bin/python3 '" PSRING_GPT_REFERENCE "' '" + scratch.path.string() + "'";
  const int status = std::system(command.c_str());
  if (WIFEXITED(status) && (WEXITSTATUS(status) == 77 || WEXITSTATUS(status) == 127)) {
    std::puts("SKIPPED: /usr/bin/python3 with NumPy is not there");
    std::fflush(stdout);
    return;
  }
  REQUIRE(status == 0);

  const std::vector<float> logits = stack.forward();
  std::vector<float> d_logits(logits.size());
  const LossResult loss = model.loss->evaluate({logits.data(), rows, shape.vocab}, targets,
                                               1.0F / static_cast<float>(rows), {d_logits.data(), rows, shape.vocab});
  stack.backward(d_logits);
  std::ifstream file(scratch.out(), std::ios::binary);
  CHECK(loss.loss_sum / static_cast<double>(loss.rows) == Approx(read(file, 1)[0]).epsilon(1e-5));
  for (const test::Parameter& parameter : stack.parameters()) {
    INFO(parameter.name);
    CHECK(test::relative_error(parameter.gradient, read(file, parameter.gradient.size())) < 1e-5);
  }
}

}  // namespace

TEST_CASE("loss and gradients agree with an independent implementation in NumPy") {
  compare("gpt:layers=2,dim=48,heads=3,context=70,vocab=61", 3);
  compare("gpt:layers=1,dim=20,heads=4,context=9,vocab=7", 1);
  compare("gpt:layers=3,dim=128,heads=2,context=96,vocab=256", 2);
}
