#include <algorithm>
#include <cmath>
#include <cstring>

#include <psring/common/base/text/error.h>
#include <psring/worker/model/device/device_network.h>
#include <psring/worker/model/graph.h>

namespace psring::worker {
namespace {

constexpr std::size_t kAlign = 256;  ///< bytes: the alignment that the fastest kernels need

std::vector<std::unique_ptr<DeviceLayer>> forms_of(const Model& model) {
  if (!is_stack(model))
    fail(ErrorKind::usage, "--device cuda: --model {}: it has branches, and GPUs compute stacks of layers alone",
         model.name);
  std::vector<std::unique_ptr<DeviceLayer>> forms;
  for (std::size_t i = 0; i < model.layers.size(); ++i) {
    forms.push_back(model.layers[i]->on_device());
    if (forms.back() == nullptr) {
      const std::vector<TensorSpec> tensors = model.layers[i]->tensors();
      fail(ErrorKind::usage, "--device cuda: --model {}: layer {}{} has no GPU implementation", model.name, i,
           tensors.empty() ? "" : " (" + tensors.front().name + ")");
    }
  }
  if (!model.metrics.empty())
    fail(ErrorKind::usage, "--device cuda: --model {}: its metric '{}' has no GPU implementation", model.name,
         model.metrics.front().name);
  if (model.loss->on_device() == Loss::OnDevice::none)
    fail(ErrorKind::usage, "--device cuda: --model {}: its loss has no GPU implementation", model.name);
  return forms;
}

}  // namespace

void check_on_device(const Model& model) { forms_of(model); }

DeviceNetwork::DeviceNetwork(const Model& model, Device& device, MemoryLedger& ledger, const Options& options,
                             TensorKernels* kernels)
    : Network(model, options),
      device_(device),
      own_kernels_(kernels == nullptr ? make_tensor_kernels(device) : nullptr),
      kernels_(kernels == nullptr ? *own_kernels_ : *kernels),
      type_(options.types.activations),
      forms_(forms_of(model)),
      loss_form_(model.loss->on_device()) {
  const std::vector<Shape> shapes = shapes_for(max_batch_);
  std::vector<Kept> kept;
  std::size_t most_gradient = 0;
  std::size_t most_scratch = 0;
  for (std::size_t i = 0; i < forms_.size(); ++i) {
    kept.push_back({forms_[i]->saved_floats(shapes[i]), forms_[i]->saved_activations(shapes[i])});
    most_scratch = std::max(most_scratch, forms_[i]->scratch(shapes[i]));
    if (i > 0) most_gradient = std::max(most_gradient, shapes[i].elements());
  }
  // The first activation lies in the batch's own memory.
  Places places = place_layers(kept, type_, type_, kAlign);
  const Place gradients[2] = {places.add(most_gradient, type_), places.add(most_gradient, type_)};
  const Place scratch = places.add(most_scratch, type_);
  memory_ = Buffer(places.bytes, Category::activations, ledger, device);
  for (const Place& p : places.activations) activations_.push_back(at(p));
  for (const Place& p : places.saved) saved_.push_back(at(p));
  for (const Place& p : places.saved_activations) saved_activations_.push_back(at(p));
  for (std::size_t i = 0; i < 2; ++i) gradients_[i] = at(gradients[i]);
  scratch_ = at(scratch);

  input_.resize(shapes[0].elements());
  targets_.resize(max_batch_ * model.rows_per_sample);
  const auto place = [&](std::size_t bytes) {
    const std::size_t offset = places_.bytes;
    places_.bytes += round_up(bytes, kAlign);
    return offset;
  };
  const std::size_t ids = model.tokens ? input_.size() : 0;
  places_.values = place(model.tokens ? ids * sizeof(std::int32_t) : 0);
  places_.targets = place(targets_.size() * sizeof(std::int32_t));
  places_.distinct = place(sizeof(std::int32_t));
  places_.ids = place(ids * sizeof(std::int32_t));
  places_.begin = place((ids + 1) * sizeof(std::int32_t));
  places_.rows = place(ids * sizeof(std::int32_t));
  on_device_ = Buffer(places_.bytes, Category::activations, ledger, device);
  const std::size_t values = model.tokens ? 0 : input_.size() * size_bytes(type_);
  for (StagingBuffer& buffer : staging_) buffer.memory = device.allocate_pinned(places_.bytes + values);

  sums_ = Buffer(sizeof(LossSums), Category::activations, ledger, device);
  result_ = device.allocate_pinned(sizeof(LossSums));
}

Elements DeviceNetwork::at(const Place& place) const {
  return {const_cast<std::byte*>(memory_.address()) + place.offset, place.count, place.type, &device_};
}

Elements DeviceNetwork::gradient(std::size_t i) const {
  return i == layers() ? activation(i) : gradients_[i % 2].subspan(0, shapes_[i].elements());
}

const std::int32_t* DeviceNetwork::on_device(std::size_t offset) const {
  return reinterpret_cast<const std::int32_t*>(on_device_.address() + offset);
}

DeviceTokens DeviceNetwork::tokens() const {
  if (!model_->tokens) return {};
  return {on_device(places_.values),
          {on_device(places_.ids), on_device(places_.begin), on_device(places_.rows), on_device(places_.distinct)}};
}

void DeviceNetwork::begin(std::size_t batch, const Randomness& randomness) {
  Network::begin(batch, randomness);
  uploaded_ = false;
}

/// Queues the copy of the batch to the device. Two staging buffers alternate, so that the next batch can be read
/// meanwhile.
void DeviceNetwork::upload() {
  StagingBuffer& buffer = staging_[++turn_ % 2];
  device_.wait(buffer.read);
  std::byte* const memory = buffer.memory.get();
  if (loss_form_ == Loss::OnDevice::cross_entropy) {
    check_targets();
    std::memcpy(memory + places_.targets, targets_.data(), targets().size_bytes());
  }
  if (model_->tokens) sort_tokens(memory);
  device_.copy_bytes(memory, on_device_.address(), places_.bytes);
  if (!model_->tokens) {
    const Elements values(memory + places_.bytes, shapes_[0].elements(), type_);
    narrow({input_.data(), shapes_[0].elements()}, values);
    device_.copy_bytes(values.data(), activation(0).data(), values.size_bytes());
  }
  buffer.read = device_.mark();
  uploaded_ = true;
}

void DeviceNetwork::check_targets() const {
  const std::size_t count = batch_ * model_->rows_per_sample;
  for (std::size_t i = 0; i < count; ++i)
    if (targets_[i] < 0 || static_cast<std::size_t>(targets_[i]) >= shapes_.back().cols)
      fail(ErrorKind::data, "target {} of row {} is not one of the model's {} classes", targets_[i], i,
           shapes_.back().cols);
}

/// Writes the ids, and the rows that hold each id: a counting sort in the order of the rows.
void DeviceNetwork::sort_tokens(std::byte* to) {
  const auto part = [&](std::size_t offset) { return reinterpret_cast<std::int32_t*>(to + offset); };
  std::int32_t* const ids = part(places_.values);
  const std::size_t count = shapes_[0].elements();
  const std::size_t vocabulary = model_->classes;
  std::vector<std::int32_t> next(vocabulary + 1, 0);
  for (std::size_t i = 0; i < count; ++i) {
    const float value = input_[i];
    if (!(value >= 0 && value < static_cast<float>(vocabulary) && value == std::floor(value)))
      fail(ErrorKind::data, "sample {} of the batch, position {}: token {} is not one of a vocabulary of {}",
           i / shapes_[0].cols, i % shapes_[0].cols, value, vocabulary);
    ids[i] = static_cast<std::int32_t>(value);
    ++next[static_cast<std::size_t>(ids[i]) + 1];
  }
  std::int32_t* const listed = part(places_.ids);
  std::int32_t* const begin = part(places_.begin);
  std::int32_t found = 0;
  for (std::size_t id = 0; id < vocabulary; ++id) {
    if (next[id + 1] > 0) {
      listed[found] = static_cast<std::int32_t>(id);
      begin[found++] = next[id];
    }
    next[id + 1] += next[id];
  }
  begin[found] = static_cast<std::int32_t>(count);
  *part(places_.distinct) = found;
  std::int32_t* const rows = part(places_.rows);
  for (std::size_t i = 0; i < count; ++i) rows[next[static_cast<std::size_t>(ids[i])]++] = static_cast<std::int32_t>(i);
}

void DeviceNetwork::forward_layer(std::size_t layer, std::span<const ConstElements> parameters, bool /*training*/,
                                  std::span<const std::span<float>> buffers) {
  check(buffers.empty(), "layers with buffers have no implementation for devices");
  if (!uploaded_) upload();
  const Device::Section section(device_, "forward", layer);
  const DeviceLayer& form = *forms_[layer];
  const Shape in = shapes_[layer];
  const bool reads_tokens = layer == 0 && model_->tokens;
  form.forward({.kernels = kernels_,
                .parameters = parameters,
                .in = in,
                .x = reads_tokens ? Elements() : activation(layer),
                .y = activation(layer + 1),
                .saved = saved(layer),
                .saved_activations = first(saved_activations_[layer], form.saved_activations(in)),
                .scratch = first(scratch_, form.scratch(in)),
                .tokens = reads_tokens ? tokens() : DeviceTokens()});
  held_ = layer;
}

std::optional<LossResult> DeviceNetwork::loss(float scale) {
  const Shape out = shapes_.back();
  auto* const sums = reinterpret_cast<LossSums*>(sums_.address());
  kernels_.loss({out.rows, out.cols},
                loss_form_ == Loss::OnDevice::cross_entropy ? on_device(places_.targets) : nullptr, scale,
                activation(layers()), sums);
  device_.copy_bytes(sums, result_.get(), sizeof(LossSums));
  loss_mark_ = device_.mark();
  return std::nullopt;
}

LossResult DeviceNetwork::loss_after() {
  device_.wait(loss_mark_);
  LossSums sums;
  std::memcpy(&sums, result_.get(), sizeof(sums));
  return {.loss_sum = sums.loss, .rows = shapes_.back().rows, .correct = sums.correct};
}

LossResult DeviceNetwork::evaluate() {
  loss(0);
  return loss_after();
}

void DeviceNetwork::backward_layer(std::size_t layer, std::span<const ConstElements> parameters,
                                   std::span<const BoundGradient> gradients) {
  const Wanted wanted = wanted_[layer];
  check(gradients.empty() || wanted.gradients, "gradients of layer {}, which are not wanted", layer);
  const Device::Section section(device_, "backward", layer);
  const DeviceLayer& form = *forms_[layer];
  const Shape in = shapes_[layer];
  const bool reads_tokens = layer == 0 && model_->tokens;
  form.backward({.kernels = kernels_,
                 .parameters = parameters,
                 .gradients = gradients,
                 .in = in,
                 .x = reads_tokens ? Elements() : activation(layer),
                 .y = layer + 1 == layers() ? Elements() : activation(layer + 1),
                 .dy = gradient(layer + 1),
                 .dx = wanted.dx ? gradient(layer) : Elements(),
                 .saved = saved(layer),
                 .saved_activations = first(saved_activations_[layer], form.saved_activations(in)),
                 .scratch = first(scratch_, form.scratch(in)),
                 .tokens = reads_tokens ? tokens() : DeviceTokens()});
}

}  // namespace psring::worker
