#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <psring/worker/model/layer.h>

namespace psring::worker {

struct GradientCheckOptions {
  std::uint64_t seed = 1;
  double epsilon = 1e-2;      ///< the step of the difference
  double tolerance = 2e-3;    ///< of the relative error
  std::size_t samples = 200;  ///< elements tried of each tensor; all where it has no more
  bool input = true;          ///< whether x has a gradient (token ids have none)
  std::vector<float> x = {};  ///< the input; empty: normal random numbers
};

/// The worst that was found.
struct GradientCheck {
  double relative_error = 0;
  std::string tensor = {};  ///< a parameter's name, or "x"
  std::size_t index = 0;
  double backward = 0;    ///< what backward says
  double difference = 0;  ///< what the finite difference says
};

/// Compares a layer's backward with central differences of its forward, for the loss sum(r * y) with random r,
/// summed in f64: for every parameter, and for x. An error is relative to the largest of the two values and the
/// root mean square of the tensor's gradient. Where it exceeds the tolerance a kink (ReLU's) may lie within the
/// step: then the step is tried again 8 times smaller, and a one-sided difference counts as well. A second backward
/// must double what the first wrote, one without dx must write the same, and one whose gradients are not wanted the
/// same dx. Throws check_failed, naming tensor and index, where the tolerance does not hold.
GradientCheck check_gradients(const Layer& layer, Shape in, const GradientCheckOptions& options = {});

}  // namespace psring::worker
