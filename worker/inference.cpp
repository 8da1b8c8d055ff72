#include <algorithm>
#include <utility>

#include <psring/common/base/memory_ledger.h>
#include <psring/common/base/text/error.h>
#include <psring/common/device/kernels.h>
#include <psring/worker/inference.h>
#include <psring/worker/model/flat_parameters.h>
#include <psring/worker/model/host_network.h>
#include <psring/worker/model/layers/layer_buffers.h>
#include <psring/worker/model/safetensors.h>

namespace psring::worker {

struct Inference::State {
  State(Model given, const std::string& path, Options options)
      : model(std::move(given)),
        flat(model, group_layers(model, "root")),
        binding(flat),
        buffer_places(buffer_layout(model)),
        buffers(model, buffer_places, ledger),
        kernels(make_cpu_kernels(options.threads)),
        network(model, *kernels, ledger, {.max_batch = options.batch, .backward = false}) {
    const TensorFile file(path);
    const Layout layout = flat.layout(1);
    std::vector<TensorSpec> specs;
    for (const UnitLayout& unit : layout.units)
      for (const TensorLayout& tensor : unit.tensors) specs.push_back(tensor.spec);
    for (const TensorLayout& buffer : buffer_places.tensors) specs.push_back(buffer.spec);
    match_tensors(file, specs);
    load_range(file, buffer_places, {0, buffers.values().size()}, buffers.values());
    parameters.resize(layout.units.size());
    for (std::size_t unit = 0; unit < parameters.size(); ++unit) {
      parameters[unit].resize(layout.units[unit].elements);
      load_range(file, layout.units[unit], {0, parameters[unit].size()}, parameters[unit]);
      binding.bind_parameters(unit, std::span<const float>(parameters[unit]));
    }
  }

  const Model model;
  MemoryLedger ledger;
  const FlatModel flat;
  Binding binding;
  const UnitLayout buffer_places;
  LayerBuffers buffers;
  const std::unique_ptr<Kernels> kernels;
  HostNetwork network;
  std::vector<std::vector<float>> parameters;  ///< by unit
};

Inference::Inference(Model model, const std::string& file) : Inference(std::move(model), file, Options()) {}

Inference::Inference(Model model, const std::string& file, Options options) {
  if (options.batch == 0 || options.threads == 0)
    fail(ErrorKind::usage, "inference: a batch of {} samples, {} threads", options.batch, options.threads);
  state_ = std::make_unique<State>(std::move(model), file, options);
}

Inference::~Inference() = default;

const Model& Inference::model() const { return state_->model; }

std::size_t Inference::output_size() const {
  return state_->network.output_shape().cols * state_->model.rows_per_sample;
}

std::vector<float> Inference::run(std::span<const float> inputs) {
  const std::size_t cols = state_->model.input_cols;
  if (inputs.size() % cols != 0)
    fail(ErrorKind::usage, "inference: {} values are no whole number of samples of {}", inputs.size(), cols);
  const std::size_t samples = inputs.size() / cols;
  HostNetwork& network = state_->network;
  std::vector<float> outputs;
  outputs.reserve(samples * output_size());
  for (std::size_t begin = 0; begin < samples;) {
    const std::size_t count = std::min(samples - begin, network.max_batch());
    network.begin(count);
    std::copy_n(inputs.begin() + static_cast<std::ptrdiff_t>(begin * cols), count * cols, network.input().data);
    for (std::size_t layer = 0; layer < network.layers(); ++layer)
      network.forward_layer(layer, state_->binding.parameters(layer), false, state_->buffers.of(layer));
    const std::span<const float> y = network.output_of(network.layers() - 1).as<float>();
    outputs.insert(outputs.end(), y.begin(), y.end());
    begin += count;
  }
  return outputs;
}

}  // namespace psring::worker
