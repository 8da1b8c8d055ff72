#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <psring/worker/model/layer.h>

namespace psring::worker {

struct GradientCheckOptions {
  std::uint64_t seed = 1;
  double epsilon = 1e-2;      ///< step of the finite difference
  double tolerance = 2e-3;    ///< maximum relative error
  std::size_t samples = 200;  ///< elements checked per tensor; all of a smaller tensor
  bool input = true;          ///< whether to check the gradients of inputs (token ids have none)
  std::vector<float> x = {};  ///< the first input; if empty, normal random numbers
};

/// The element with the largest error.
struct GradientCheck {
  double relative_error = 0;
  std::string tensor = {};  ///< the name of a parameter, or of an input
  std::size_t index = 0;
  double backward = 0;    ///< the gradient from backward
  double difference = 0;  ///< the gradient from the finite difference
};

/// Compares a layer's backward with central differences of its forward, for the loss sum(r * y) with random r, summed
/// in f64: for every parameter, and for every input. Errors are relative to the largest of both values and the root
/// mean square of the tensor's gradient. A kink (ReLU's) may cause a large error: then the step is retried 8 times
/// smaller, and one-sided differences count as well. Also checks that a second backward doubles the gradients, that
/// backward without dx writes the same gradients, and that backward without parameter gradients writes the same dx.
/// Throws check_failed, naming tensor and index, if a check fails.
GradientCheck check_gradients(const Layer& layer, Shape in, const GradientCheckOptions& options = {});

/// The same for a layer with several inputs, each with a shape and values of its own. With the function above, all
/// inputs of such a layer are x.
GradientCheck check_gradients(const Layer& layer, std::span<const Shape> in, const GradientCheckOptions& options = {});

}  // namespace psring::worker
