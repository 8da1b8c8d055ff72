#include <algorithm>

#include <psring/common/base/error.h>
#include <psring/worker/model/network.h>

namespace psring::worker {

Network::Network(const Model& model, const Options& options)
    : model_(&model),
      max_batch_(options.max_batch),
      recomputed_(options.recomputed),
      wanted_(options.wanted),
      computed_(options.computed) {
  check(max_batch_ > 0 && !model.layers.empty() && model.loss != nullptr, "model {}: no layers, loss or batch",
        model.name);
  if (wanted_.empty())
    for (std::size_t i = 0; i < model.layers.size(); ++i) wanted_.push_back({.dx = i > 0});
  Network::begin(max_batch_);
  if (shapes_.back().rows != max_batch_ * model.rows_per_sample)
    fail(ErrorKind::usage, "model {}: its output has {} rows for {} samples, its loss expects {} a sample", model.name,
         shapes_.back().rows, max_batch_, model.rows_per_sample);
}

void Network::begin(std::size_t batch) {
  check(batch > 0 && batch <= max_batch_, "a batch of {} in a network for up to {}", batch, max_batch_);
  if (batch == batch_) return;
  shapes_ = shapes_for(batch);
  batch_ = batch;
}

std::vector<Shape> Network::shapes_for(std::size_t batch) const {
  std::vector<Shape> shapes{{batch, model_->input_cols}};
  for (const auto& layer : model_->layers) shapes.push_back(layer->output(shapes.back()));
  return shapes;
}

void Network::computed(std::size_t layer, Wanted wanted, bool backward) const {
  if (!computed_) return;
  const Layer& of = *model_->layers[layer];
  const double forward = of.flops(shapes_[layer], {.dx = false, .gradients = false});
  computed_(backward ? of.flops(shapes_[layer], wanted) - forward : forward);
}

Range Network::to_recompute(std::size_t layer) const {
  for (const Range range : recomputed_)
    if (range.begin <= layer && layer < range.end) {
      const bool held = range.begin <= held_ && held_ < range.end;
      return held ? Range{} : range;
    }
  return {};
}

double Network::flops(std::size_t batch) const {
  const std::vector<Shape> shapes = shapes_for(batch);
  double sum = 0;
  for (std::size_t i = 0; i < layers(); ++i) sum += model_->layers[i]->flops(shapes[i], wanted_[i]);
  return sum;
}

Network::Place Network::Places::add(std::size_t count, DType type) {
  const std::size_t offset = bytes;
  bytes += round_up(count * size_bytes(type), alignment);
  return {offset, count, type};
}

Network::Places Network::place_layers(std::span<const Kept> kept, DType activations, DType input,
                                      std::size_t alignment) const {
  const std::vector<Shape> shapes = shapes_for(max_batch_);
  const std::size_t layers = model_->layers.size();
  Places places{.alignment = alignment};
  places.activations.resize(shapes.size());
  places.saved.resize(layers);
  places.saved_activations.resize(layers);
  const auto place_activation = [&](std::size_t i) {
    places.activations[i] = places.add(shapes[i].elements(), i == 0 ? input : activations);
  };
  const auto place_saved = [&](std::size_t i) {
    places.saved[i] = places.add(kept[i].floats, DType::f32);
    places.saved_activations[i] = places.add(kept[i].activations, activations);
  };
  if (recomputed_.empty()) {
    for (std::size_t i = 0; i < shapes.size(); ++i) place_activation(i);
    for (std::size_t i = 0; i < layers; ++i) place_saved(i);
    return places;
  }
  // Activations within a range reuse the memory of the range before.
  for (const Range range : recomputed_) place_activation(range.begin);
  place_activation(shapes.size() - 1);
  const std::size_t begin = places.bytes;
  std::size_t end = begin;
  for (const Range range : recomputed_) {
    places.bytes = begin;
    for (std::size_t i = range.begin; i < range.end; ++i) {
      if (i > range.begin) place_activation(i);
      place_saved(i);
    }
    end = std::max(end, places.bytes);
  }
  places.bytes = end;
  return places;
}

}  // namespace psring::worker
