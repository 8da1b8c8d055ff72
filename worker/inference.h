#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <psring/worker/model/model.h>

namespace psring::worker {

/// A trained model in a program without a job or another process. Evaluates as training does: without dropout, with
/// batch norm's running statistics, and with the bits of a run's own evaluation if the batch and the number of threads
/// are the same. One object serves one thread.
class Inference {
 public:
  struct Options {
    std::size_t batch = 64;  ///< samples that are computed together; more memory, and faster
    std::size_t threads = 1;
  };

  /// Loads `file` (a run's model.safetensors, or another file that --init accepts). Throws data, naming the file and
  /// the tensor, if the file does not fit the model.
  Inference(Model model, const std::string& file);
  Inference(Model model, const std::string& file, Options options);
  ~Inference();

  const Model& model() const;
  /// Values of one sample's output: the columns of its rows, one row after another.
  std::size_t output_size() const;
  /// Returns the outputs (of a classifier: one score a class) of samples of model().input_cols values each. Throws
  /// usage if `inputs` holds no whole number of samples.
  std::vector<float> run(std::span<const float> inputs);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace psring::worker
