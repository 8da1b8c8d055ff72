#include <algorithm>
#include <cmath>
#include <deque>
#include <memory>
#include <utility>

#include <psring/common/base/error.h>
#include <psring/common/base/rng.h>
#include <psring/common/device/kernels.h>
#include <psring/worker/model/check_gradients.h>

namespace psring::worker {
namespace {

/// A layer with its own buffers, whose values can be changed one at a time.
class Probe {
 public:
  Probe(const Layer& layer, Shape in, const GradientCheckOptions& options)
      : layer_(layer), in_(in), out_(layer.output(in)), tensors_(layer.tensors()), kernels_(make_cpu_kernels()) {
    for (const TensorSpec& tensor : tensors_) values_.push_back(initial(tensor, options.seed));
    x_ = options.x.empty() ? noise(in.elements(), options.seed, 1) : options.x;
    check(x_.size() == in.elements(), "check_gradients: {} inputs for {}x{}", x_.size(), in.rows, in.cols);
    weights_ = noise(out_.elements(), options.seed, 0);
    y_.resize(out_.elements());
    saved_.resize(layer.saved_floats(in));
    saved_activations_.resize(layer.saved_activations(in));
    scratch_.resize(layer.scratch_floats(in));
  }

  std::size_t tensors() const { return tensors_.size(); }
  const std::string& name(std::size_t tensor) const { return tensors_[tensor].name; }
  std::vector<float>& values(std::size_t tensor) { return values_[tensor]; }
  std::vector<float>& x() { return x_; }

  const std::vector<float>& forward() {
    std::vector<std::span<const float>> parameters(values_.begin(), values_.end());
    layer_.forward({*kernels_,
                    parameters,
                    {x_.data(), in_.rows, in_.cols},
                    {y_.data(), out_.rows, out_.cols},
                    saved_,
                    saved_activations_,
                    scratch_});
    return y_;
  }

  /// Runs backward `times` times into gradients that start as NaN. The last element of the result is dx, which is empty
  /// if it is not wanted.
  std::vector<std::vector<float>> backward(int times, Wanted wanted) {
    forward();
    std::vector<std::span<const float>> parameters(values_.begin(), values_.end());
    std::vector<std::vector<float>> results;
    for (const auto& value : values_) results.emplace_back(value.size(), std::nanf(""));
    results.emplace_back(wanted.dx ? x_.size() : 0, std::nanf(""));
    std::deque<bool> fresh(values_.size(), true);
    std::vector<Gradient> gradients(wanted.gradients ? 0 : values_.size());
    for (std::size_t t = 0; wanted.gradients && t < values_.size(); ++t)
      gradients.emplace_back(std::span(results[t]), fresh[t]);
    const Matrix dx{wanted.dx ? results.back().data() : nullptr, in_.rows, in_.cols};
    for (int i = 0; i < times; ++i)
      layer_.backward({*kernels_,
                       parameters,
                       gradients,
                       {x_.data(), in_.rows, in_.cols},
                       {y_.data(), out_.rows, out_.cols},
                       {weights_.data(), out_.rows, out_.cols},
                       dx,
                       saved_,
                       saved_activations_,
                       scratch_});
    return results;
  }

  struct Differences {
    double central, left, right;
  };
  /// Returns the finite differences of sum(r * y) with respect to `value`.
  Differences differences(float& value, double epsilon) {
    const float before = value;
    const auto at = [&](double moved) {
      value = static_cast<float>(moved);
      return std::pair<double, std::vector<float>>(value, forward());
    };
    const auto here = at(before);
    const auto above = at(before + epsilon);
    const auto below = at(before - epsilon);
    value = before;
    const auto slope = [&](const auto& high, const auto& low) {
      double sum = 0;
      for (std::size_t i = 0; i < weights_.size(); ++i)
        sum += static_cast<double>(weights_[i]) *
               (static_cast<double>(high.second[i]) - static_cast<double>(low.second[i]));
      return sum / (high.first - low.first);
    };
    return {slope(above, below), slope(here, below), slope(above, here)};
  }

 private:
  static std::vector<float> noise(std::size_t n, std::uint64_t seed, std::uint32_t stream) {
    const CounterRng rng({.seed = seed, .purpose = Purpose::test, .tensor = stream});
    std::vector<float> values(n);
    for (std::size_t i = 0; i < n; ++i) values[i] = rng.normal(i);
    return values;
  }

  /// Returns initial values like the tensor's, but not constant, and large enough that rounding does not dominate the
  /// differences.
  std::vector<float> initial(const TensorSpec& tensor, std::uint64_t seed) const {
    const bool constant = tensor.init.kind == Init::Kind::constant;
    const float spread = constant ? 0.2F : std::max(tensor.init.a, 0.2F);
    const auto stream = static_cast<std::uint32_t>(values_.size() + 2);
    std::vector<float> values = noise(tensor.elements(), seed, stream);
    for (float& value : values) value = spread * value + (constant ? tensor.init.a : 0.0F);
    return values;
  }

  const Layer& layer_;
  Shape in_;
  Shape out_;
  std::vector<TensorSpec> tensors_;
  std::unique_ptr<Kernels> kernels_;
  std::vector<std::vector<float>> values_;
  std::vector<float> x_, weights_, y_, saved_, saved_activations_, scratch_;
};

double root_mean_square(const std::vector<float>& values) {
  double sum = 0;
  for (const float value : values) sum += static_cast<double>(value) * static_cast<double>(value);
  return std::sqrt(sum / static_cast<double>(std::max<std::size_t>(values.size(), 1)));
}

/// NaN counts as the largest error.
double relative(double a, double b, double scale) {
  if (a == b) return 0;
  const double error = std::abs(a - b) / std::max({std::abs(a), std::abs(b), scale});
  return std::isnan(error) ? INFINITY : error;
}

/// Returns the error of one element.
GradientCheck compare(Probe& probe, float& value, double backward, double scale, const GradientCheckOptions& options) {
  const double central = probe.differences(value, options.epsilon).central;
  GradientCheck best{.relative_error = relative(backward, central, scale), .backward = backward, .difference = central};
  if (best.relative_error <= options.tolerance) return best;
  const auto [closer, left, right] = probe.differences(value, options.epsilon / 8);
  for (const double difference : {closer, left, right}) {
    const double error = relative(backward, difference, scale);
    if (error < best.relative_error) best = {.relative_error = error, .backward = backward, .difference = difference};
  }
  return best;
}

/// Returns the largest error over all elements, or over `samples` random elements.
GradientCheck worst_of(Probe& probe, const std::string& name, std::vector<float>& values,
                       const std::vector<float>& gradient, const GradientCheckOptions& options) {
  const double scale = root_mean_square(gradient);
  const CounterRng rng({.seed = options.seed, .purpose = Purpose::test, .step = 1});
  GradientCheck worst;
  const std::size_t tries = std::min(values.size(), options.samples);
  for (std::size_t i = 0; i < tries; ++i) {
    const std::size_t index = tries == values.size() ? i : rng.bits(i) % values.size();
    const GradientCheck found = compare(probe, values[index], gradient[index], scale, options);
    if (found.relative_error < worst.relative_error) continue;
    worst = found;
    worst.index = index;
  }
  worst.tensor = name;
  return worst;
}

void check_accumulation(Probe& probe, const std::vector<std::vector<float>>& once, bool with_dx) {
  const auto twice = probe.backward(2, {.dx = with_dx});
  const auto alone = probe.backward(1, {.dx = false});
  for (std::size_t t = 0; t < probe.tensors(); ++t) {
    const double scale = root_mean_square(once[t]);
    for (std::size_t i = 0; i < once[t].size(); ++i) {
      if (relative(2.0 * static_cast<double>(once[t][i]), twice[t][i], scale) > 1e-4)
        fail(ErrorKind::check_failed, "{}[{}]: one backward gives {}, two give {}", probe.name(t), i, once[t][i],
             twice[t][i]);
      if (relative(once[t][i], alone[t][i], scale) > 1e-5)
        fail(ErrorKind::check_failed, "{}[{}]: backward gives {} with dx, {} without", probe.name(t), i, once[t][i],
             alone[t][i]);
    }
  }
}

/// Checks dx of a layer whose parameters are not trained.
void check_dx_alone(Probe& probe, const std::vector<float>& dx) {
  const std::vector<float> alone = probe.backward(1, {.gradients = false}).back();
  const double scale = root_mean_square(dx);
  for (std::size_t i = 0; i < dx.size(); ++i)
    if (relative(dx[i], alone[i], scale) > 1e-5)
      fail(ErrorKind::check_failed, "x[{}]: backward gives {} with the parameters' gradients, {} without", i, dx[i],
           alone[i]);
}

}  // namespace

GradientCheck check_gradients(const Layer& layer, Shape in, const GradientCheckOptions& options) {
  Probe probe(layer, in, options);
  const auto gradients = probe.backward(1, {.dx = options.input});
  check_accumulation(probe, gradients, options.input);
  if (options.input) check_dx_alone(probe, gradients.back());
  GradientCheck worst;
  const auto consider = [&](const GradientCheck& found) {
    if (found.relative_error > options.tolerance)
      fail(ErrorKind::check_failed,
           "{}[{}]: backward gives {:.7g}, the finite difference {:.7g} (relative error {:.2g})", found.tensor,
           found.index, found.backward, found.difference, found.relative_error);
    if (found.relative_error >= worst.relative_error) worst = found;
  };
  for (std::size_t t = 0; t < probe.tensors(); ++t)
    consider(worst_of(probe, probe.name(t), probe.values(t), gradients[t], options));
  if (options.input) consider(worst_of(probe, "x", probe.x(), gradients.back(), options));
  return worst;
}

}  // namespace psring::worker
