#include <algorithm>
#include <cmath>
#include <deque>
#include <memory>
#include <utility>

#include <psring/common/base/rng.h>
#include <psring/common/base/text/error.h>
#include <psring/common/device/kernels.h>
#include <psring/worker/model/check_gradients.h>

namespace psring::worker {
namespace {

/// A layer with its own buffers, whose values can be changed one at a time.
class Probe {
 public:
  /// `in`: shapes of the layer's inputs, or one shape if all inputs are x.
  Probe(const Layer& layer, std::span<const Shape> in, const GradientCheckOptions& options)
      : layer_(layer),
        in_(in.begin(), in.end()),
        names_(layer.inputs()),
        tensors_(layer.tensors()),
        kernels_(make_cpu_kernels()) {
    check(in_.size() == names_.size() || in_.size() == 1, "check_gradients: {} shapes for {} inputs", in_.size(),
          names_.size());
    std::vector<Shape> all;
    for (std::size_t i = 0; i < names_.size(); ++i) all.push_back(in_[source(i)]);
    out_ = layer.output_of(all);
    for (const TensorSpec& tensor : tensors_) values_.push_back(initial(tensor, options.seed));
    for (std::size_t i = 0; i < in_.size(); ++i)
      x_.push_back(i > 0 || options.x.empty()
                       ? noise(in_[i].elements(), options.seed, static_cast<std::uint32_t>(i == 0 ? 1 : 1000 + i))
                       : options.x);
    check(x_[0].size() == in_[0].elements(), "check_gradients: {} inputs for {}x{}", x_[0].size(), in_[0].rows,
          in_[0].cols);
    weights_ = noise(out_.elements(), options.seed, 0);
    y_.resize(out_.elements());
    saved_.resize(layer.saved_floats(in_[0]));
    saved_activations_.resize(layer.saved_activations(in_[0]));
    scratch_.resize(layer.scratch_floats(in_[0]));
  }

  std::size_t tensors() const { return tensors_.size(); }
  const std::string& name(std::size_t tensor) const { return tensors_[tensor].name; }
  std::vector<float>& values(std::size_t tensor) { return values_[tensor]; }
  std::size_t inputs() const { return x_.size(); }
  const std::string& input_name(std::size_t i) const { return names_[i]; }
  std::vector<float>& input(std::size_t i) { return x_[i]; }

  const std::vector<float>& forward() {
    const std::vector<std::span<const float>> parameters(values_.begin(), values_.end());
    const std::vector<ConstMatrix> inputs = matrices();
    layer_.forward({*kernels_,
                    parameters,
                    inputs.front(),
                    {y_.data(), out_.rows, out_.cols},
                    saved_,
                    saved_activations_,
                    scratch_,
                    true,
                    {},
                    DType::f32,
                    inputs,
                    in_[0].rows});
    return y_;
  }

  /// Runs backward `times` times into gradients that start as NaN. The last elements of the result are the gradients of
  /// inputs(), which are empty if they are not wanted.
  std::vector<std::vector<float>> backward(int times, Wanted wanted) {
    forward();
    const std::vector<std::span<const float>> parameters(values_.begin(), values_.end());
    std::vector<std::vector<float>> results;
    for (const auto& value : values_) results.emplace_back(value.size(), std::nanf(""));
    for (const auto& x : x_) results.emplace_back(wanted.dx ? x.size() : 0, std::nanf(""));
    std::deque<bool> fresh(values_.size(), true);
    std::vector<Gradient> gradients(wanted.gradients ? 0 : values_.size());
    for (std::size_t t = 0; wanted.gradients && t < values_.size(); ++t)
      gradients.emplace_back(std::span(results[t]), fresh[t]);
    const std::vector<ConstMatrix> inputs = matrices();
    for (int i = 0; i < times; ++i) {
      std::deque<bool> fresh_inputs(x_.size(), true);
      std::vector<Gradient> d_inputs(names_.size() > 1 ? names_.size() : 0);
      for (std::size_t j = 0; wanted.dx && j < d_inputs.size(); ++j)
        d_inputs[j] = {std::span(results[values_.size() + source(j)]), fresh_inputs[source(j)]};
      layer_.backward({*kernels_,
                       parameters,
                       gradients,
                       inputs.front(),
                       {y_.data(), out_.rows, out_.cols},
                       {weights_.data(), out_.rows, out_.cols},
                       {wanted.dx ? results[values_.size()].data() : nullptr, in_[0].rows, in_[0].cols},
                       saved_,
                       saved_activations_,
                       scratch_,
                       inputs,
                       d_inputs});
    }
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
  /// The element of x_ that is the layer's input i.
  std::size_t source(std::size_t i) const { return in_.size() == 1 ? 0 : i; }
  std::vector<ConstMatrix> matrices() const {
    std::vector<ConstMatrix> list;
    for (std::size_t i = 0; i < names_.size(); ++i)
      list.emplace_back(x_[source(i)].data(), in_[source(i)].rows, in_[source(i)].cols);
    return list;
  }

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
  std::vector<Shape> in_;
  std::vector<std::string> names_;  ///< of the layer's inputs
  Shape out_;
  std::vector<TensorSpec> tensors_;
  std::unique_ptr<Kernels> kernels_;
  std::vector<std::vector<float>> values_;
  std::vector<std::vector<float>> x_;  ///< by shape
  std::vector<float> weights_, y_, saved_, saved_activations_, scratch_;
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

/// Checks the inputs' gradients of a layer whose parameters are not trained.
void check_dx_alone(Probe& probe, const std::vector<std::vector<float>>& with) {
  const auto alone = probe.backward(1, {.gradients = false});
  for (std::size_t input = 0; input < probe.inputs(); ++input) {
    const std::vector<float>& dx = with[probe.tensors() + input];
    const double scale = root_mean_square(dx);
    for (std::size_t i = 0; i < dx.size(); ++i)
      if (relative(dx[i], alone[probe.tensors() + input][i], scale) > 1e-5)
        fail(ErrorKind::check_failed, "{}[{}]: backward gives {} with the parameters' gradients, {} without",
             probe.input_name(input), i, dx[i], alone[probe.tensors() + input][i]);
  }
}

}  // namespace

GradientCheck check_gradients(const Layer& layer, Shape in, const GradientCheckOptions& options) {
  return check_gradients(layer, std::span(&in, 1), options);
}

GradientCheck check_gradients(const Layer& layer, std::span<const Shape> in, const GradientCheckOptions& options) {
  Probe probe(layer, in, options);
  const auto gradients = probe.backward(1, {.dx = options.input});
  check_accumulation(probe, gradients, options.input);
  if (options.input) check_dx_alone(probe, gradients);
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
  for (std::size_t i = 0; options.input && i < probe.inputs(); ++i)
    consider(worst_of(probe, probe.input_name(i), probe.input(i), gradients[probe.tensors() + i], options));
  return worst;
}

}  // namespace psring::worker
