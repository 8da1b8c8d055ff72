#include <algorithm>
#include <cstdlib>
#include <memory>
#include <set>
#include <typeinfo>

#include <cxxabi.h>

#include <psring/bench/cost/workload.h>
#include <psring/common/base/error.h>
#include <psring/common/base/spec.h>
#include <psring/worker/model/graph.h>
#include <psring/worker/pace.h>
#include <psring/worker/server_weights.h>
#include <psring/worker/train_setup.h>

namespace psring::bench {

std::string kind_of(const worker::Layer& layer) {
  const std::unique_ptr<char, decltype(&std::free)> name(
      abi::__cxa_demangle(typeid(layer).name(), nullptr, nullptr, nullptr), &std::free);
  const std::string whole = name ? name.get() : typeid(layer).name();
  const std::size_t colon = whole.rfind("::");
  return colon == std::string::npos ? whole : whole.substr(colon + 2);
}

std::string LayerPass::line() const {
  return fmt::format("compute.{}.{}.{}", kind, backward ? "backward" : "forward", name_of(type));
}

double elements_of(const worker::Model& model, std::size_t layer, std::span<const worker::Shape> shapes) {
  auto sum = static_cast<double>(shapes[layer + 1].elements());
  const std::vector<std::size_t> sources = worker::sources_of(model, layer);
  for (const std::size_t source : std::set<std::size_t>(sources.begin(), sources.end()))
    sum += static_cast<double>(shapes[source].elements());
  for (const TensorSpec& tensor : model.layers[layer]->tensors()) sum += static_cast<double>(tensor.elements());
  return sum;
}

double Workload::compute_s() const {
  double sum = 0;
  for (std::size_t i = 0; i < layers.size(); ++i)
    sum += layers[i].forward_s + (i >= first_trained_layer ? layers[i].backward_s : 0);
  return sum * static_cast<double>(micro_batches);
}

double Workload::flops() const {
  double sum = 0;
  for (const LayerTime& layer : layers) sum += layer.flops;
  return sum * static_cast<double>(micro_batches);
}

namespace {

/// With --compute sleep, each pass of a layer takes an equal part of the step (worker/pace.h).
void set_sleeps(const JobOptions& job, Workload& work) {
  const std::optional<Nanoseconds> step = worker::parse_compute(job.compute);
  if (!step) return;
  const std::size_t passes = 2 * work.layers.size() - work.first_trained_layer;
  const double each = seconds(*step) / static_cast<double>(passes * work.micro_batches);
  for (std::size_t i = 0; i < work.layers.size(); ++i) {
    work.layers[i].forward_s = each;
    work.layers[i].backward_s = i >= work.first_trained_layer ? each : 0;
  }
}

/// With activation checkpointing the layers of every run but the last go forward again (worker/model/network.h).
void add_recomputing(const worker::FlatModel& flat, Workload& work) {
  for (std::size_t layer = work.first_trained_layer; layer < flat.runs().back().begin; ++layer)
    work.layers[layer].backward_s += work.layers[layer].forward_s;
}

}  // namespace

Workload make_workload(const JobOptions& job, const worker::Registries& registries, std::size_t owners,
                       const PassTime& time) {
  Workload work;
  const std::unique_ptr<worker::Model> model = registries.models.make(Spec::parse("--model", job.model));
  worker::FlatModel flat(*model, worker::group_layers(*model, job.units));
  if (!job.freeze.empty()) flat.freeze(worker::listed_units(flat, job.freeze));
  work.model = model->name;
  work.tokens = model->tokens;
  work.rows_per_sample = model->rows_per_sample;
  work.layout = flat.layout(owners);
  work.layout.parameter_type = parse_dtype("--precision", job.precision);
  work.layout.gradient_type =
      job.comm_dtype.empty() ? work.layout.parameter_type : parse_dtype("--comm-dtype", job.comm_dtype);
  const auto kind = registries.strategies.make(Spec::parse("--strategy", job.strategy));
  if (kind->servers) work.layout.weights = worker::server_weights(job, *kind, work.layout);
  work.layout.piece_elements = worker::piece_elements(job, work.layout);
  work.first_trained_layer = flat.first_trained_layer();
  work.micro_batches = job.accumulate;
  const std::size_t batch = std::max<std::size_t>(1, job.batch_per_worker() / job.accumulate);
  const std::vector<worker::Shape> shapes = worker::activation_shapes(*model, batch);
  const std::vector<worker::Wanted> wanted = flat.wanted();
  for (std::size_t i = 0; i < model->layers.size(); ++i) {
    const worker::Layer& layer = *model->layers[i];
    const worker::Shape shape = shapes[worker::sources_of(*model, i).front()];
    const double forward = layer.flops(shape, {.dx = false, .gradients = false});
    const double all = layer.flops(shape, wanted[i]);
    const bool goes_back = wanted[i].dx || wanted[i].gradients;
    LayerPass pass{kind_of(layer), false, forward, elements_of(*model, i, shapes), work.layout.parameter_type};
    LayerTime times{.unit = flat.unit_of(i), .forward_s = time(pass), .backward_s = 0, .flops = all};
    pass.backward = true;
    pass.flops = all - forward;
    if (goes_back) times.backward_s = time(pass);
    work.layers.push_back(times);
  }
  if (job.activation_checkpointing == "unit") add_recomputing(flat, work);
  set_sleeps(job, work);
  for (std::size_t unit = 0; unit < flat.units(); ++unit) {
    const auto layers = flat.layers_of(unit);
    work.unit_layers.push_back({layers.front(), layers.back() + 1});
    work.backward_layers.push_back(flat.backward_layers(unit));
  }
  return work;
}

}  // namespace psring::bench
