#include <algorithm>
#include <cstdlib>
#include <map>
#include <memory>
#include <set>
#include <typeinfo>
#include <utility>

#include <cxxabi.h>

#include <psring/bench/predict/workload.h>
#include <psring/common/base/text/error.h>
#include <psring/common/base/text/spec.h>
#include <psring/worker/exchange/mesh/stage_links.h>
#include <psring/worker/model/graph.h>
#include <psring/worker/model/parallel/cut.h>
#include <psring/worker/pace.h>
#include <psring/worker/servers/server_weights.h>
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

/// A whole model, or one part of each of its layers.
struct Described {
  std::shared_ptr<const worker::Model> model;  ///< shared by the workloads
  std::shared_ptr<const worker::FlatModel> flat;
};

std::unique_ptr<worker::Model> model_of(const JobOptions& job, const worker::Registries& registries,
                                        const worker::TensorPart& part) {
  const Spec spec = Spec::parse("--model", job.model);
  if (!part.whole() && registries.models.contains(spec.name()) && !registries.tensor_models.contains(spec.name()))
    fail(ErrorKind::usage, "--tensor {}: --model {}: its layers cannot be divided; models that can: {}", job.tensor,
         spec.name(), registries.tensor_models.names());
  return part.whole() ? registries.models.make(spec) : registries.tensor_models.make(spec, part);
}

Described describe(const JobOptions& job, const worker::Registries& registries, const worker::TensorPart& part) {
  auto model = model_of(job, registries, part);
  worker::FlatModel flat(*model, worker::group_layers(*model, job.units));
  if (!job.freeze.empty()) flat.freeze(worker::listed_units(flat, job.freeze));
  return {std::move(model), std::make_shared<const worker::FlatModel>(std::move(flat))};
}

/// One stage. `flat`: of all stages.
Described stage_of(const JobOptions& job, const worker::Registries& registries, const worker::TensorPart& part,
                   const worker::FlatModel& flat, Range layers) {
  auto model = model_of(job, registries, part);
  *model = worker::take_stage(std::move(*model), layers);
  return {std::move(model), std::make_shared<const worker::FlatModel>(flat.part(layers))};
}

/// With --compute sleep, each pass of a layer takes an equal part of the step (worker/pace.h), in all stages.
void set_sleeps(const JobOptions& job, std::vector<Workload>& stages) {
  const std::optional<Nanoseconds> step = worker::parse_compute(job.compute);
  if (!step) return;
  std::size_t passes = 0;
  for (const Workload& work : stages) passes += 2 * work.layers.size() - work.first_trained_layer;
  for (Workload& work : stages) {
    const double each = seconds(*step) / static_cast<double>(passes * work.micro_batches);
    for (std::size_t i = 0; i < work.layers.size(); ++i) {
      work.layers[i].forward_s = each;
      work.layers[i].backward_s = i >= work.first_trained_layer ? each : 0;
    }
  }
}

/// With activation checkpointing the layers of every run but the last go forward again (worker/model/network.h). If
/// other micro-batches went forward in between, so does the last run: in a pipeline, but for the last stage of 1f1b.
void add_recomputing(const JobOptions& job, const worker::FlatModel& flat, bool last_stage, Workload& work) {
  const bool alone = job.pipeline == 1 || (last_stage && job.pipeline_schedule == "1f1b");
  const std::size_t end = alone || job.accumulate == 1 ? flat.runs().back().begin : flat.layers();
  for (std::size_t i = work.first_trained_layer; i < end; ++i) {
    LayerTime& layer = work.layers[i];
    layer.backward_s += layer.forward_s;
    layer.backward_sums.insert(layer.backward_sums.end(), layer.forward_sums.begin(), layer.forward_sums.end());
  }
}

void add_layers(const worker::Model& model, const worker::FlatModel& flat, std::size_t batch, const PassTime& time,
                Workload& work) {
  const std::vector<worker::Shape> shapes = worker::activation_shapes(model, batch);
  const std::vector<worker::Wanted> wanted = flat.wanted();
  for (std::size_t i = 0; i < model.layers.size(); ++i) {
    const worker::Layer& layer = *model.layers[i];
    const worker::Shape shape = shapes[worker::sources_of(model, i).front()];
    const double forward = layer.flops(shape, {.dx = false, .gradients = false});
    const double all = layer.flops(shape, wanted[i]);
    const bool goes_back = wanted[i].dx || wanted[i].gradients;
    LayerPass pass{kind_of(layer), false, forward, elements_of(model, i, shapes), work.layout.parameter_type};
    LayerTime times{.unit = flat.unit_of(i), .forward_s = time(pass), .backward_s = 0, .flops = all};
    pass.backward = true;
    pass.flops = all - forward;
    if (goes_back) times.backward_s = time(pass);
    const worker::LayerSums sums = layer.tensor_sums(shape, wanted[i]);
    if (sums.forward > 0) times.forward_sums.push_back(static_cast<double>(sums.forward * sizeof(float)));
    if (goes_back && sums.backward > 0)
      times.backward_sums.push_back(static_cast<double>(sums.backward * sizeof(float)));
    work.layers.push_back(std::move(times));
  }
}

/// The messages between stages, and the loss's sums over the tensor group.
void add_messages(const worker::Model& stage, const worker::FlatModel& flat, std::size_t batch, bool last,
                  Workload& work) {
  const auto sizes = worker::StageLinks::sizes_of(stage, flat, last, {.max_batch = batch});
  const auto bytes = [&](std::size_t elements) {
    return static_cast<double>(elements * batch * size_bytes(work.layout.parameter_type));
  };
  work.input_bytes = bytes(sizes.input);
  work.input_gradient_bytes = sizes.input_gradient ? work.input_bytes : 0;
  work.output_bytes = bytes(sizes.output);
  work.output_gradient_bytes = sizes.output_gradient ? work.output_bytes : 0;
  if (stage.loss == nullptr) return;
  const worker::LossExchange loss = stage.loss->tensor_sums(batch * stage.rows_per_sample);
  if (loss.largest_f32 > 0) work.loss_sums.push_back(static_cast<double>(loss.largest_f32 * sizeof(float)));
  if (loss.sum_f64 > 0) work.loss_sums.push_back(static_cast<double>(loss.sum_f64 * sizeof(double)));
}

/// Adds what a micro-batch of `batch` samples computes and sends.
void add_passes(const JobOptions& job, const worker::Model& stage, const worker::FlatModel& flat, std::size_t batch,
                bool last, const PassTime& time, Workload& work) {
  add_layers(stage, flat, batch, time, work);
  if (job.activation_checkpointing == "unit") add_recomputing(job, flat, last, work);
  add_messages(stage, flat, batch, last, work);
}

void mix(double& value, double other, double share) { value += share * (other - value); }
void mix(std::vector<double>& values, const std::vector<double>& others, double share) {
  check(values.size() == others.size(), "micro-batches of different sizes sum different vectors");
  for (std::size_t i = 0; i < values.size(); ++i) mix(values[i], others[i], share);
}

/// Turns the work of the smaller micro-batches into the mean of all of them.
void mix_in(Workload& work, const Workload& larger, double share) {
  for (std::size_t i = 0; i < work.layers.size(); ++i) {
    LayerTime& layer = work.layers[i];
    const LayerTime& other = larger.layers[i];
    mix(layer.forward_s, other.forward_s, share);
    mix(layer.backward_s, other.backward_s, share);
    mix(layer.flops, other.flops, share);
    mix(layer.forward_sums, other.forward_sums, share);
    mix(layer.backward_sums, other.backward_sums, share);
  }
  mix(work.input_bytes, larger.input_bytes, share);
  mix(work.input_gradient_bytes, larger.input_gradient_bytes, share);
  mix(work.output_bytes, larger.output_bytes, share);
  mix(work.output_gradient_bytes, larger.output_gradient_bytes, share);
  mix(work.loss_sums, larger.loss_sums, share);
}

void add_units(const worker::FlatModel& flat, const std::map<std::string, std::vector<std::size_t>>& stages_of,
               Workload& work) {
  for (std::size_t unit = 0; unit < flat.units(); ++unit) {
    const auto layers = flat.layers_of(unit);
    work.unit_layers.push_back({layers.front(), layers.back() + 1});
    work.backward_layers.push_back(flat.backward_layers(unit));
    for (const TensorLayout& tensor : work.layout.units[unit].tensors)
      if (const auto& stages = stages_of.at(tensor.spec.name); flat.trained(unit) && stages.size() > 1)
        work.shared.push_back({unit, {tensor.offset, tensor.offset + tensor.spec.elements()}, stages});
  }
}

}  // namespace

std::vector<Workload> make_workloads(const JobOptions& job, const worker::Registries& registries, std::size_t owners,
                                     const PassTime& time, std::span<const RowTraffic> rows) {
  const Described whole = describe(job, registries, {});
  worker::check_size(job, whole.flat->layout(owners));
  const std::vector<Range> stages = worker::stages_of_job(job, *whole.model);
  const auto stages_of = worker::stages_of_tensors(*whole.model, stages);
  const auto kind = registries.strategies.make(Spec::parse("--strategy", job.strategy));
  // A batch is cut into micro-batches of at most two sizes, which differ by one sample (worker::Trainer).
  const std::size_t smaller = std::max<std::size_t>(1, job.batch_per_worker() / job.accumulate);
  const std::size_t one_more = job.batch_per_worker() < job.accumulate ? 0 : job.batch_per_worker() % job.accumulate;
  const worker::TensorPart largest =
      job.tensor > 1 ? worker::TensorPart(job.tensor - 1, job.tensor) : worker::TensorPart();
  const Described divided = job.tensor > 1 ? describe(job, registries, largest) : whole;
  std::vector<Workload> all;
  for (const Range layers : stages) {
    const bool last = layers.end == whole.model->layers.size();
    const Described part = job.pipeline > 1 ? stage_of(job, registries, largest, *divided.flat, layers) : divided;
    const worker::Model& model = *part.model;
    Workload work;
    work.model = whole.model->name;
    work.stage = part.model;
    work.flat = part.flat;
    work.tokens = whole.model->tokens;
    work.rows_per_sample = whole.model->rows_per_sample;
    work.layout = part.flat->layout(owners);
    work.layout.parameter_type = parse_dtype("--precision", job.precision);
    work.layout.gradient_type =
        job.comm_dtype.empty() ? work.layout.parameter_type : parse_dtype("--comm-dtype", job.comm_dtype);
    if (kind->servers) work.layout.weights = worker::server_weights(job, *kind, work.layout);
    work.layout.piece_elements = worker::piece_elements(job, work.layout);
    work.first_trained_layer = part.flat->first_trained_layer();
    work.micro_batches = job.accumulate;
    work.rows.assign(rows.begin(), rows.end());
    work.layout.tables.resize(rows.size());
    add_units(*part.flat, stages_of, work);
    Workload larger = work;
    add_passes(job, model, *part.flat, smaller, last, time, work);
    if (one_more > 0) {
      add_passes(job, model, *part.flat, smaller + 1, last, time, larger);
      mix_in(work, larger, static_cast<double>(one_more) / static_cast<double>(job.accumulate));
    }
    all.push_back(std::move(work));
  }
  set_sleeps(job, all);
  return all;
}

}  // namespace psring::bench
