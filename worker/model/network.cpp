#include <algorithm>
#include <new>

#include <psring/common/base/error.h>
#include <psring/common/base/range.h>
#include <psring/worker/model/network.h>

namespace psring::worker {
namespace {

constexpr std::size_t kAlign = 64;  ///< bytes: a cache line, the widest vector

std::size_t padded(std::size_t floats) { return round_up(floats, kAlign / sizeof(float)); }

}  // namespace

void Network::Free::operator()(float* memory) const { ::operator delete (memory, std::align_val_t{kAlign}); }

Network::Network(const Model& model, Kernels& kernels, MemoryLedger& ledger, std::size_t max_batch)
    : model_(&model), kernels_(&kernels), ledger_(&ledger), max_batch_(max_batch) {
  check(max_batch > 0 && !model.layers.empty() && model.loss != nullptr, "model {}: no layers, loss or batch",
        model.name);
  const std::vector<Shape> shapes = shapes_for(max_batch);
  if (shapes.back().rows != max_batch * model.rows_per_sample)
    fail(ErrorKind::usage, "model {}: its output has {} rows for {} samples, its loss expects {} a sample", model.name,
         shapes.back().rows, max_batch, model.rows_per_sample);

  std::size_t floats = 0;
  const auto place = [&](std::size_t count) {
    const std::size_t offset = floats;
    floats += padded(count);
    return offset;
  };
  std::vector<std::size_t> activations;
  std::vector<std::size_t> saved;
  std::size_t most_gradient = 0;
  std::size_t most_scratch = 0;
  for (std::size_t i = 0; i < shapes.size(); ++i) {
    activations.push_back(place(shapes[i].elements()));
    if (i > 0) most_gradient = std::max(most_gradient, shapes[i].elements());
  }
  for (std::size_t i = 0; i < model.layers.size(); ++i) {
    saved.push_back(place(model.layers[i]->saved_floats(shapes[i])));
    most_scratch = std::max(most_scratch, model.layers[i]->scratch_floats(shapes[i]));
  }
  const std::size_t gradients[2] = {place(most_gradient), place(most_gradient)};
  const std::size_t scratch = place(most_scratch);

  bytes_ = floats * sizeof(float);
  arena_.reset(static_cast<float*>(::operator new (bytes_, std::align_val_t{kAlign})));
  ledger_->book(Category::activations, bytes_);
  for (const std::size_t offset : activations) activations_.push_back(arena_.get() + offset);
  for (const std::size_t offset : saved) saved_.push_back(arena_.get() + offset);
  for (std::size_t i = 0; i < 2; ++i) gradients_[i] = arena_.get() + gradients[i];
  scratch_ = arena_.get() + scratch;
  targets_.resize(max_batch * model.rows_per_sample);
  begin(max_batch);
}

Network::~Network() { ledger_->release(Category::activations, bytes_); }

std::vector<Shape> Network::shapes_for(std::size_t batch) const {
  std::vector<Shape> shapes{{batch, model_->input_cols}};
  for (const auto& layer : model_->layers) shapes.push_back(layer->output(shapes.back()));
  return shapes;
}

void Network::begin(std::size_t batch) {
  check(batch > 0 && batch <= max_batch_, "a batch of {} in a network for up to {}", batch, max_batch_);
  if (batch == batch_) return;
  shapes_ = shapes_for(batch);
  batch_ = batch;
}

std::span<float> Network::scratch(std::size_t layer) const {
  return {scratch_, model_->layers[layer]->scratch_floats(shapes_[layer])};
}

std::span<float> Network::saved(std::size_t layer) const {
  return {saved_[layer], model_->layers[layer]->saved_floats(shapes_[layer])};
}

Matrix Network::gradient(std::size_t i) const { return {gradients_[i % 2], shapes_[i].rows, shapes_[i].cols}; }

void Network::forward_layer(std::size_t layer, std::span<const std::span<const float>> parameters, bool training,
                            std::span<const std::span<float>> buffers) {
  model_->layers[layer]->forward({*kernels_, parameters, activation(layer), activation(layer + 1), saved(layer),
                                  scratch(layer), training, buffers});
}

std::span<const std::int32_t> Network::wanted() const { return {targets_.data(), batch_ * model_->rows_per_sample}; }

LossResult Network::evaluate() const { return model_->loss->evaluate(output(), wanted(), 0, {}); }

LossResult Network::loss(float scale) { return model_->loss->evaluate(output(), wanted(), scale, gradient(layers())); }

void Network::backward_layer(std::size_t layer, std::span<const std::span<const float>> parameters,
                             std::span<const Gradient> gradients) {
  const Matrix dx = layer == 0 ? Matrix{nullptr, shapes_[0].rows, shapes_[0].cols} : gradient(layer);
  model_->layers[layer]->backward({*kernels_, parameters, gradients, activation(layer), activation(layer + 1),
                                   gradient(layer + 1), dx, saved(layer), scratch(layer)});
}

double Network::flops(std::size_t batch) const {
  const std::vector<Shape> shapes = shapes_for(batch);
  double sum = 0;
  for (std::size_t i = 0; i < layers(); ++i) sum += model_->layers[i]->flops(shapes[i], i > 0);
  return sum;
}

}  // namespace psring::worker
