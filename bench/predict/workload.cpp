#include <algorithm>
#include <map>
#include <set>
#include <typeinfo>
#include <utility>

#include <psring/bench/predict/workload.h>
#include <psring/common/base/system/extension.h>
#include <psring/common/base/text/error.h>
#include <psring/common/base/text/spec.h>
#include <psring/worker/exchange/mesh/stage_links.h>
#include <psring/worker/model/graph.h>
#include <psring/worker/model/parallel/cut.h>
#include <psring/worker/pace.h>
#include <psring/worker/servers/server_weights.h>
#include <psring/worker/train_setup.h>

namespace psring::bench {

std::string LayerPass::line() const {
  return fmt::format("compute.{}.{}.{}", kind, backward ? "backward" : "forward", name_of(type));
}

namespace {

/// The name of a layer's class, without namespaces.
std::string kind_of(const worker::Layer& layer) {
  const std::string whole = name_of(typeid(layer));
  const std::size_t colon = whole.rfind("::");
  return colon == std::string::npos ? whole : whole.substr(colon + 2);
}

/// The elements of a layer's different inputs, of its output and parameters.
double elements_of(const worker::Model& model, std::size_t layer, std::span<const worker::Shape> shapes) {
  auto sum = static_cast<double>(shapes[layer + 1].elements());
  const std::vector<std::size_t> sources = worker::sources_of(model, layer);
  for (const std::size_t source : std::set<std::size_t>(sources.begin(), sources.end()))
    sum += static_cast<double>(shapes[source].elements());
  for (const TensorSpec& tensor : model.layers[layer]->tensors()) sum += static_cast<double>(tensor.elements());
  return sum;
}

}  // namespace

std::pair<LayerPass, LayerPass> passes_of(const worker::Model& model, std::size_t layer,
                                          std::span<const worker::Shape> shapes, const worker::Wanted& wanted,
                                          DType type) {
  const worker::Layer& of = *model.layers[layer];
  const worker::Shape shape = shapes[worker::sources_of(model, layer).front()];
  LayerPass forward{kind_of(of), false, of.flops(shape, {.dx = false, .gradients = false}),
                    elements_of(model, layer, shapes), type};
  LayerPass backward = forward;
  backward.backward = true;
  backward.flops = of.flops(shape, wanted) - forward.flops;
  return {std::move(forward), std::move(backward)};
}

double Workload::compute_s() const {
  double sum = 0;
  for (std::size_t i = 0; i < layers.size(); ++i)
    sum += layers[i].forward_s + (i >= first_trained_layer ? layers[i].backward_s : 0);
  return sum * static_cast<double>(micro_batches);
}

namespace {

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

/// The micro-batches of one size, and their share of all.
struct Micros {
  std::size_t batch = 1;
  double share = 1;

  /// Adds the bytes of the vector with this number, if there is one.
  void add_sum(std::size_t bytes, std::size_t number, std::vector<double>& sums) const {
    if (bytes == 0) return;
    sums.resize(std::max(sums.size(), number + 1));
    sums[number] += share * static_cast<double>(bytes);
  }
};

void add_layers(const worker::Model& model, const worker::FlatModel& flat, const Micros& micros, const PassTime& time,
                Workload& work) {
  const std::vector<worker::Shape> shapes = worker::activation_shapes(model, micros.batch);
  const std::vector<worker::Wanted> wanted = flat.wanted();
  work.layers.resize(model.layers.size());
  for (std::size_t i = 0; i < model.layers.size(); ++i) {
    const bool goes_back = wanted[i].dx || wanted[i].gradients;
    const auto [forward, backward] = passes_of(model, i, shapes, wanted[i], work.layout.parameter_type);
    LayerTime& layer = work.layers[i];
    layer.unit = flat.unit_of(i);
    layer.forward_s += micros.share * time(forward);
    if (goes_back) layer.backward_s += micros.share * time(backward);
    const worker::LayerSums sums =
        model.layers[i]->tensor_sums(shapes[worker::sources_of(model, i).front()], wanted[i]);
    micros.add_sum(sums.forward * sizeof(float), 0, layer.forward_sums);
    if (goes_back) micros.add_sum(sums.backward * sizeof(float), 0, layer.backward_sums);
  }
}

/// The messages between stages, and the loss's sums over the tensor group.
void add_messages(const worker::Model& stage, const worker::FlatModel& flat, const Micros& micros, bool last,
                  Workload& work) {
  const auto sizes = worker::StageLinks::sizes_of(stage, flat, last, {.max_batch = micros.batch});
  const auto add = [&](double& bytes, std::size_t elements, bool is_sent = true) {
    const std::size_t all = elements * micros.batch * size_bytes(work.layout.parameter_type);
    if (is_sent) bytes += micros.share * static_cast<double>(all);
  };
  add(work.input_bytes, sizes.input);
  add(work.input_gradient_bytes, sizes.input, sizes.input_gradient);
  add(work.output_bytes, sizes.output);
  add(work.output_gradient_bytes, sizes.output, sizes.output_gradient);
  if (stage.loss == nullptr) return;
  const worker::LossExchange loss = stage.loss->tensor_sums(micros.batch * stage.rows_per_sample);
  micros.add_sum(loss.largest_f32 * sizeof(float), 0, work.loss_sums);
  micros.add_sum(loss.sum_f64 * sizeof(double), loss.largest_f32 > 0 ? 1 : 0, work.loss_sums);
}

void add_units(const worker::FlatModel& flat, const std::map<std::string, std::vector<std::size_t>>& stages_of,
               Workload& work) {
  for (std::size_t unit = 0; unit < flat.units(); ++unit) {
    const auto layers = flat.layers_of(unit);
    work.unit_layers.push_back({layers.front(), layers.back() + 1});
    work.backward_layers.push_back(flat.backward_layers(unit));
    for (const TensorLayout& tensor : work.layout.units[unit].tensors)
      if (const auto& stages = stages_of.at(tensor.spec.name); flat.trained(unit) && stages.size() > 1) {
        work.shared.push_back({unit, {tensor.offset, tensor.offset + tensor.spec.elements()}, work.sharing.size()});
        work.sharing.push_back(stages);
      }
  }
}

}  // namespace

std::vector<Workload> make_workloads(const JobOptions& job, const worker::Registries& registries, std::size_t owners,
                                     const PassTime& time, std::span<const RowTraffic> rows) {
  const worker::JobModel whole = worker::make_job_model(job, registries, {});
  worker::check_size(job, whole.flat->layout(owners));
  const std::vector<Range> stages = worker::stages_of_job(job, *whole.model);
  const auto stages_of = worker::stages_of_tensors(*whole.model, stages);
  const auto kind = registries.strategies.make(Spec::parse("--strategy", job.strategy));
  // A batch is cut into micro-batches of at most two sizes, which differ by one sample (worker::Trainer).
  const std::size_t smaller = std::max<std::size_t>(1, job.batch_per_worker() / job.accumulate);
  const std::size_t one_more = job.batch_per_worker() < job.accumulate ? 0 : job.batch_per_worker() % job.accumulate;
  const double share = static_cast<double>(one_more) / static_cast<double>(job.accumulate);
  std::vector<Micros> sizes{{smaller, 1 - share}};
  if (one_more > 0) sizes.push_back({smaller + 1, share});
  const worker::TensorPart largest =
      job.tensor > 1 ? worker::TensorPart(job.tensor - 1, job.tensor) : worker::TensorPart();
  std::vector<Workload> all;
  for (const Range layers : stages) {
    const bool last = layers.end == whole.model->layers.size();
    worker::JobModel part = worker::make_job_model(job, registries, largest);
    if (job.pipeline > 1) part.take_stage(layers);
    Workload work;
    work.stage = std::move(part.model);
    work.flat = std::move(part.flat);
    const worker::FlatModel& flat = *work.flat;
    work.tokens = whole.model->tokens;
    work.rows_per_sample = whole.model->rows_per_sample;
    work.layout = flat.layout(owners);
    work.layout.parameter_type = parse_dtype("--precision", job.precision);
    work.layout.gradient_type =
        job.comm_dtype.empty() ? work.layout.parameter_type : parse_dtype("--comm-dtype", job.comm_dtype);
    if (kind->servers) work.layout.weights = worker::server_weights(job, *kind, work.layout);
    work.layout.piece_elements = worker::piece_elements(job, work.layout);
    work.first_trained_layer = flat.first_trained_layer();
    work.micro_batches = job.accumulate;
    work.rows.assign(rows.begin(), rows.end());
    work.layout.tables.resize(rows.size());
    add_units(flat, stages_of, work);
    for (const Micros& micros : sizes) {
      add_layers(*work.stage, flat, micros, time, work);
      add_messages(*work.stage, flat, micros, last, work);
    }
    if (job.activation_checkpointing == "unit") add_recomputing(job, flat, last, work);
    all.push_back(std::move(work));
  }
  set_sleeps(job, all);
  return all;
}

}  // namespace psring::bench
