#include <algorithm>

#include <psring/common/base/text/error.h>
#include <psring/worker/model/graph.h>
#include <psring/worker/model/network.h>

namespace psring::worker {

Network::Network(const Model& model, const Options& options)
    : model_(&model),
      max_batch_(options.max_batch),
      recomputed_(options.recomputed),
      wanted_(options.wanted),
      input_gradient_(options.input_gradient),
      first_layer_(options.first_layer),
      computed_(options.computed) {
  check(max_batch_ > 0 && !model.layers.empty(), "model {}: no layers or batch", model.name);
  check_graph(model);
  last_reader_.resize(model.layers.size() + 1, model.layers.size());
  for (std::size_t i = 0; i < model.layers.size(); ++i) {
    sources_.push_back(sources_of(model, i));
    for (const std::size_t source : sources_.back()) last_reader_[source] = i;
  }
  target_values_.resize(max_batch_ * model.rows_per_sample * model.target_cols);
  if (wanted_.empty())
    for (std::size_t i = 0; i < model.layers.size(); ++i) wanted_.push_back({.dx = i > 0});
  Network::begin(max_batch_);
  if (model.loss != nullptr && shapes_.back().rows != max_batch_ * model.rows_per_sample)
    fail(ErrorKind::usage, "model {}: its output has {} rows for {} samples, its loss expects {} a sample", model.name,
         shapes_.back().rows, max_batch_, model.rows_per_sample);
}

void Network::begin(std::size_t batch, const Randomness& randomness) {
  check(batch > 0 && batch <= max_batch_, "a batch of {} in a network for up to {}", batch, max_batch_);
  randomness_ = randomness;
  if (batch == batch_) return;
  shapes_ = shapes_for(batch);
  batch_ = batch;
}

const TableView* Network::table_of(std::size_t layer) const {
  const std::optional<std::size_t> table = model_->layers[layer]->table();
  return table ? &tables_.at(*table) : nullptr;
}

std::vector<Shape> Network::shapes_for(std::size_t batch) const { return activation_shapes(*model_, batch); }

/// A layer with one input follows the caller's wish. Of several inputs, the gradients of those inputs are wanted that
/// depend on trained layers.
bool Network::wants_dx(std::size_t layer, std::size_t source) const {
  if (!wanted_[layer].dx) return false;
  if (sources_[layer].size() == 1) return true;
  if (source == 0) return input_gradient_;
  return wanted_[source - 1].dx || wanted_[source - 1].gradients;
}

void Network::computed(std::size_t layer, Wanted wanted, bool backward) const {
  if (!computed_) return;
  const Layer& of = *model_->layers[layer];
  const Shape x = shapes_[sources_[layer].front()];
  const double forward = of.flops(x, {.dx = false, .gradients = false});
  computed_(backward ? of.flops(x, wanted) - forward : forward);
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
  for (std::size_t i = 0; i < layers(); ++i) sum += model_->layers[i]->flops(shapes[sources_[i].front()], wanted_[i]);
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
    places.own_bytes = places.bytes;
    return places;
  }
  // Activations within a range reuse the memory of the range before.
  for (std::size_t i = 0; i < shapes.size(); ++i)
    if (outlives_its_range(i)) place_activation(i);
  const std::size_t begin = places.bytes;
  std::size_t end = begin;
  for (const Range range : recomputed_) {
    places.bytes = begin;
    for (std::size_t i = range.begin; i < range.end; ++i) {
      if (!outlives_its_range(i)) place_activation(i);
      place_saved(i);
    }
    end = std::max(end, places.bytes);
  }
  places.bytes = end;
  places.own_bytes = begin;
  return places;
}

std::size_t Network::range_of(std::size_t layer) const {
  for (std::size_t i = 0; i < recomputed_.size(); ++i)
    if (recomputed_[i].begin <= layer && layer < recomputed_[i].end) return i;
  fail(ErrorKind::bug, "layer {} is in no range", layer);
}

bool Network::outlives_its_range(std::size_t i) const {
  if (i == 0 || i == layers()) return true;
  return range_of(last_reader_[i]) != range_of(i - 1);
}

}  // namespace psring::worker
