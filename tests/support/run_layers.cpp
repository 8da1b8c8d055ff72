#include <algorithm>
#include <cmath>
#include <limits>

#include <psring/common/base/text/error.h>
#include <psring/tests/support/run_layers.h>

namespace psring::test {
namespace {

constexpr float kUnset = std::numeric_limits<float>::quiet_NaN();

}  // namespace

LayerStack::LayerStack(std::vector<const worker::Layer*> layers, worker::Shape in, std::uint64_t seed)
    : layers_(std::move(layers)), shapes_{in} {
  for (const worker::Layer* layer : layers_) {
    saved_.emplace_back(layer->saved_floats(shapes_.back()));
    saved_activations_.emplace_back(layer->saved_activations(shapes_.back()));
    shapes_.push_back(layer->output(shapes_.back()));
    for (const TensorSpec& tensor : layer->tensors()) {
      const auto [place, added] = index_.emplace(tensor.name, parameters_.size());
      if (!added) continue;
      // Biases and layer norms' weights too are drawn, so that their gradients' terms do not vanish.
      std::vector<float> value = normal(tensor.elements(), seed + 1 + parameters_.size());
      for (float& v : value) v = tensor.init.kind == Init::Kind::normal ? 0.2F * v : tensor.init.a + 0.1F * v;
      parameters_.push_back({tensor.name, value, std::vector<float>(value.size(), kUnset)});
    }
  }
  for (const worker::Shape& shape : shapes_) {
    activations_.emplace_back(shape.elements(), kUnset);
    gradients_.emplace_back(shape.elements(), kUnset);
  }
  activations_.front() = normal(in.elements(), seed);
}

Parameter& LayerStack::parameter(const std::string& name) { return parameters_.at(index_.at(name)); }

std::vector<std::span<const float>> LayerStack::values(const worker::Layer& layer) {
  std::vector<std::span<const float>> spans;
  for (const TensorSpec& tensor : layer.tensors()) spans.emplace_back(parameter(tensor.name).value);
  return spans;
}

const std::vector<float>& LayerStack::forward() {
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    const auto parameters = values(*layers_[i]);
    const worker::Shape in = shapes_[i];
    const worker::Shape out = shapes_[i + 1];
    std::fill(saved_[i].begin(), saved_[i].end(), kUnset);
    std::fill(saved_activations_[i].begin(), saved_activations_[i].end(), kUnset);
    std::fill(activations_[i + 1].begin(), activations_[i + 1].end(), kUnset);
    std::vector<float> scratch(layers_[i]->scratch_floats(in), kUnset);
    layers_[i]->forward({kernels_,
                         parameters,
                         {activations_[i].data(), in.rows, in.cols},
                         {activations_[i + 1].data(), out.rows, out.cols},
                         saved_[i],
                         saved_activations_[i],
                         scratch});
  }
  return activations_.back();
}

const std::vector<float>& LayerStack::backward(std::span<const float> output_gradient, bool add) {
  std::unique_ptr<bool[]> fresh(new bool[parameters_.size()]);
  std::fill_n(fresh.get(), parameters_.size(), !add);
  gradients_.back().assign(output_gradient.begin(), output_gradient.end());
  for (std::size_t i = layers_.size(); i-- > 0;) {
    const auto parameters = values(*layers_[i]);
    std::vector<worker::Gradient> gradients;
    for (const TensorSpec& tensor : layers_[i]->tensors()) {
      std::vector<float>& gradient = parameter(tensor.name).gradient;
      gradients.emplace_back(std::span(gradient), fresh[index_.at(tensor.name)]);
    }
    const worker::Shape in = shapes_[i];
    const worker::Shape out = shapes_[i + 1];
    std::fill(gradients_[i].begin(), gradients_[i].end(), kUnset);
    std::vector<float> scratch(layers_[i]->scratch_floats(in), kUnset);
    layers_[i]->backward({kernels_,
                          parameters,
                          gradients,
                          {activations_[i].data(), in.rows, in.cols},
                          {activations_[i + 1].data(), out.rows, out.cols},
                          {gradients_[i + 1].data(), out.rows, out.cols},
                          {gradients_[i].data(), in.rows, in.cols},
                          saved_[i],
                          saved_activations_[i],
                          scratch});
  }
  return gradients_.front();
}

std::vector<float> normal(std::size_t n, std::uint64_t seed) {
  const CounterRng rng({.seed = seed, .purpose = Purpose::test});
  std::vector<float> values(n);
  for (std::size_t i = 0; i < n; ++i) values[i] = rng.normal(i);
  return values;
}

double dot(std::span<const float> a, std::span<const float> b) {
  check(a.size() == b.size(), "a product of {} and {} elements", a.size(), b.size());
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += static_cast<double>(a[i]) * static_cast<double>(b[i]);
  return sum;
}

double relative_error(std::span<const float> a, std::span<const double> b) {
  check(a.size() == b.size(), "a difference of {} and {} elements", a.size(), b.size());
  double difference = 0;
  double norm = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double d = static_cast<double>(a[i]) - b[i];
    difference += d * d;
    norm += b[i] * b[i];
  }
  return std::sqrt(difference) / std::max(std::sqrt(norm), 1e-30);
}

}  // namespace psring::test
