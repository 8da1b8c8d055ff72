// Loads a trained model into a program of its own, and prints its accuracy on the data set's test samples:
//   psring train --model mlp:784-64-10 --data fashion-mnist --steps 200 --out run
//   ./predict mlp:784-64-10 run/model.safetensors fashion-mnist
#include <algorithm>
#include <cstdio>

#include <psring/cli/app.h>
#include <psring/worker/inference.h>
using namespace psring::worker;

int predict(const char* model_text, const char* file, const char* data_text) {
  const psring::App app;  // knows the names of models and data sets
  const Registries& names = app.worker_registries();
  Inference model(std::move(*names.models.make(psring::Spec::parse("MODEL", model_text))), file);
  const std::size_t cols = model.model().input_cols;
  const std::size_t classes = model.model().classes;
  const DataSplit data = make_dataset(names.datasets, psring::Spec::parse("DATA", data_text),
                                      {.input_cols = cols, .classes = classes, .seed = 1, .model = model_text});
  const std::size_t n = data.test->size();
  std::vector<float> inputs(n * cols);
  std::vector<std::int32_t> labels(n);
  for (std::size_t i = 0; i < n; ++i) data.test->read(i, {{&inputs[i * cols], cols}, {&labels[i], 1}});
  const std::vector<float> scores = model.run(inputs);
  std::size_t correct = 0;
  for (std::size_t i = 0; i < n; ++i) {
    const auto* row = scores.data() + i * classes;
    correct += std::max_element(row, row + classes) - row == labels[i] ? 1 : 0;
  }
  std::printf("accuracy %.4f of %zu samples\n", static_cast<double>(correct) / static_cast<double>(n), n);
  return 0;
}

int main(int argc, char** argv) {
  if (argc != 4) std::fprintf(stderr, "usage: predict MODEL FILE DATA\n");
  return argc != 4 ? 2 : psring::App::guard([&] { return predict(argv[1], argv[2], argv[3]); });
}
