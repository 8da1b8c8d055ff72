// A program with a data set of its own, whose targets are real numbers, and with a callback that records a figure:
//   ./own_data train --strategy ddp --workers 2 --model mse-mlp:1-32-1 --data wave:samples=512 --steps 300
#include <cmath>

#include <psring/cli/app.h>

using namespace psring::worker;

struct Wave final : Dataset {  // y = sin(x), with x from -3 to 3
  explicit Wave(std::size_t samples) : n(samples) {}
  std::size_t size() const override { return n; }
  std::size_t input_cols() const override { return 1; }
  std::size_t target_values() const override { return 1; }
  void read(std::size_t i, const SampleMemory& to) const override {
    to.input[0] = 6 * static_cast<float>(i) / static_cast<float>(n) - 3;
    to.values[0] = std::sin(to.input[0]);
  }
  const std::size_t n;
};

int main(int argc, char** argv) {
  psring::App app;
  app.datasets().add("wave", "wave:samples=N: a sine", [](const psring::Spec& spec, const DataNeeds&) {
    spec.allow_only({"samples"});
    const std::size_t n = spec.positive("samples", 512);
    return std::make_unique<DataSplit>(DataSplit{std::make_unique<Wave>(n), std::make_unique<Wave>(n / 4 + 1)});
  });
  app.on_step([](StepContext& step) { step.record("root_loss", std::sqrt(step.loss())); });  // in metrics.jsonl
  return app.run(argc, argv);
}
