#include <algorithm>
#include <numeric>
#include <utility>

#include <psring/common/base/text/error.h>
#include <psring/common/device/device.h>
#include <psring/common/net/link_shaping.h>
#include <psring/common/proc/mesh_servers.h>
#include <psring/optim/job_optimizer.h>
#include <psring/optim/rows/row_hash.h>
#include <psring/worker/data/picked_samples.h>
#include <psring/worker/data/sampler.h>
#include <psring/worker/data_needs.h>
#include <psring/worker/model/device/device_network.h>
#include <psring/worker/model/generate/gpt_weights.h>
#include <psring/worker/model/layers/layer_buffers.h>
#include <psring/worker/model/parallel/cut.h>
#include <psring/worker/model/safetensors.h>
#include <psring/worker/servers/server_weights.h>
#include <psring/worker/state/checkpoints.h>
#include <psring/worker/tables/table_setup.h>
#include <psring/worker/train_setup.h>

namespace psring::worker {
namespace {

std::size_t key_fields(const Model& model) {
  std::size_t fields = 0;
  for (const TableSpec& table : model.tables) fields += table.features.size();
  return fields;
}

/// The bits that a key of any feature may have.
std::size_t key_bits(const Model& model) {
  const bool fuses = std::ranges::any_of(model.tables, &TableSpec::fuses);
  return fuses ? optim::kFeatureShift : 64;
}

}  // namespace

DataNeeds needs_of(const Model& model, const JobOptions& job) {
  return {.input_cols = model.input_cols,
          .rows_per_sample = model.rows_per_sample,
          .classes = model.classes,
          .tokens = model.tokens,
          .targets = model.classes > 0,
          .target_values = model.rows_per_sample * model.target_cols,
          .key_fields = key_fields(model),
          .key_bits = key_bits(model),
          .seed = job.seed,
          .model = job.model};
}

namespace {

/// Leaves the first --eval-samples of the test set.
void limit_evaluation(const JobOptions& job, DataSplit& data) {
  const std::size_t wanted = job.eval_samples;
  if (wanted == 0) return;
  if (data.test == nullptr) fail(ErrorKind::usage, "--eval-samples {}: --data {} has no test set", wanted, job.data);
  if (wanted > data.test->size())
    fail(ErrorKind::usage, "--eval-samples {}: the test set of --data {} has {} samples", wanted, job.data,
         data.test->size());
  data.test = first_samples(std::move(data.test), wanted);
  data.best = nullptr;  // it knows all of the test set
}

std::vector<TensorSpec> specs_of(const Layout& layout) {
  std::vector<TensorSpec> specs;
  for (const UnitLayout& unit : layout.units)
    for (const TensorLayout& tensor : unit.tensors) specs.push_back(tensor.spec);
  return specs;
}

constexpr std::uint64_t kMostSteps = std::uint64_t{1} << 32;  // random numbers take a step of 32 bits

DType parse_precision(const char* flag, const std::string& name) {
  if (name != "f32" && name != "bf16" && name != "f16")
    fail(ErrorKind::usage, "{}: expected f32, bf16 or f16, got '{}'", flag, name);
  return parse_dtype(flag, name);
}

/// Refuses parts that have no GPU form: they are not computed elsewhere.
void check_device(const JobOptions& job, const StrategyKind& strategy, const Model& model) {
  require_cuda();
  check_on_device(model);
  const auto refuse = [](bool wrong, const std::string& what) {
    if (wrong) fail(ErrorKind::usage, "--device cuda: {} computes on the host alone", what);
  };
  refuse(!strategy.on_device, "--strategy " + job.strategy);
  refuse(job.local_reduce, "--local-reduce");
}

void check_consistency(const JobOptions& job, const optim::Optimizer& optimizer) {
  if (optimizer.layerwise() && parse_consistency(job.consistency).each_push_updates)
    fail(ErrorKind::usage, "--optimizer {}: its rates are of a whole step, and need --consistency bsp", job.optimizer);
}

/// Servers without a trained tensor would not take part in the verdicts of the other servers, and would not report
/// skipped steps to workers.
void check_stages_of_servers(const JobOptions& job, const StrategyKind& strategy, const TrainSetup::Whole& whole) {
  if (!strategy.servers) return;
  for (std::size_t stage = 0; stage < whole.stages.size(); ++stage) {
    bool trained = false;
    for (std::size_t i = 0; i < whole.parameters; ++i)
      trained = trained || (whole.trained[i] && whole.stage_of[i] == stage);
    if (!trained && job.pipeline > 1)
      fail(ErrorKind::usage,
           "--freeze {}: stage {} of --pipeline {} trains nothing, and --strategy {} has servers for it", job.freeze,
           stage, job.pipeline, job.strategy);
  }
}

void check_precision(const JobOptions& job, const Layout& layout, const optim::Optimizer& optimizer) {
  if (!optimizer.layerwise()) return;
  if (layout.gradient_type != DType::f32)
    fail(ErrorKind::usage, "--optimizer {}: its directions take the gradients' place, and need f32: --comm-dtype f32",
         job.optimizer);
  if (layout.parameter_type != DType::f32 && !job.master_copy)
    fail(ErrorKind::usage, "--optimizer {}: --precision {} needs --master-copy on", job.optimizer, job.precision);
}

}  // namespace

void check_size(const JobOptions& job, const Layout& layout) {
  double bytes = 0;  // in floating point: the number of elements itself may not fit into any integer
  for (const TensorSpec& spec : specs_of(layout))
    bytes += std::accumulate(spec.shape.begin(), spec.shape.end(), double{sizeof(float)},
                             [](double product, std::size_t extent) { return product * static_cast<double>(extent); });
  constexpr double kGiB = std::size_t{1} << 30;
  if (bytes > kGiB * (1 << 20))
    fail(ErrorKind::data, "--model {}: its parameters take {:.6g} GiB", job.model, bytes / kGiB);
}

std::size_t piece_elements(const JobOptions& job, const Layout& layout) {
  constexpr std::size_t kPiecesOfStandalone = 64;
  std::size_t elements = kPieceElements;
  if (!job.link.empty()) {
    const double carried = net::parse_link(job.link).bits_per_second * 0.005 / (8 * sizeof(float));
    elements = static_cast<std::size_t>(std::min(carried, 1e9));
  }
  if (!layout.weights.even()) elements = std::min(elements, layout.owned_elements(0) / kPiecesOfStandalone);
  return std::clamp(elements / kCut * kCut, kLeastPieceElements, kPieceElements);
}

Layout TrainSetup::served_layout() const {
  if (!strategy_->row_servers) return layout_;
  Layout served;
  served.owners = job_.servers;
  served.tables = layout_.tables;
  return served;
}

/// The number of owners of each unit.
std::size_t TrainSetup::owners() const {
  if (strategy_->servers) return servers_of_part(job_);
  return strategy_->ring ? job_.shard_owners().value_or(job_.data_workers()) : 1;
}

/// REQUIRES: model, flat model, layout and buffers are whole.
void TrainSetup::describe_whole() {
  const auto add = [&](const UnitLayout& unit, bool trained) {
    for (const TensorLayout& tensor : unit.tensors) {
      whole_.tensors.push_back(tensor.spec);
      whole_.trained.push_back(trained);
      whole_.ids.push_back(tensor.id);
    }
  };
  for (const UnitLayout& unit : layout_.units) add(unit, unit.trained);
  whole_.parameters = whole_.tensors.size();
  add(buffers_, false);
  whole_.stage_of.assign(whole_.tensors.size(), 0);
  whole_.units = layout_.units.size();
  whole_.layers = made_.flat->layers();
  whole_.first_trained_layer = made_.flat->first_trained_layer();
  whole_.input_cols = made_.model->input_cols;
  whole_.stages = {{0, made_.flat->layers()}};
  if (job_.pipeline == 1) return;
  whole_.stages = stages_of_job(job_, *made_.model);
  const std::map<std::string, SharingStages> stages_of = stages_of_tensors(*made_.model, whole_.stages);
  for (std::size_t i = 0; i < whole_.tensors.size(); ++i)
    whole_.stage_of[i] = stages_of.at(whole_.tensors[i].name).front();
  for (const auto& [name, stages] : stages_of) {
    if (stages.size() == 1) continue;
    const auto known = std::ranges::find(whole_.sharing, stages);
    whole_.shared[name] = static_cast<std::size_t>(known - whole_.sharing.begin());
    if (known == whole_.sharing.end()) whole_.sharing.push_back(stages);
  }
}

JobModel make_job_model(const JobOptions& job, const Registries& registries, const TensorPart& part) {
  const Spec spec = Spec::parse("--model", job.model);
  if (!part.whole() && registries.models.contains(spec.name()) && !registries.tensor_models.contains(spec.name()))
    fail(ErrorKind::usage, "--tensor {}: --model {}: its layers cannot be divided; models that can: {}", job.tensor,
         spec.name(), registries.tensor_models.names());
  auto model = part.whole() ? registries.models.make(spec) : registries.tensor_models.make(spec, part);
  auto flat = std::make_unique<FlatModel>(*model, group_layers(*model, job.units));
  if (!job.freeze.empty()) flat->freeze(listed_units(*flat, job.freeze));
  return {std::move(model), std::move(flat)};
}

void JobModel::take_stage(Range layers) {
  *flat = flat->part(layers);
  *model = worker::take_stage(std::move(*model), layers);
}

void TrainSetup::become(std::optional<JobRank> rank) {
  const Mesh mesh = job_.mesh();
  if (!mesh.divides_model()) return;
  tensor_part_ = rank ? TensorPart(mesh.tensor_rank(*rank), mesh.tensor) : TensorPart();
  made_ = make_job_model(job_, *registries_, tensor_part_);
  if (!tensor_part_.first()) made_.flat->count_slices_alone();
  const UnitLayout buffers = buffer_layout(*made_.model);
  stage_ = rank ? mesh.stage(*rank) : 0;
  if (rank) {
    made_.take_stage(whole_.stages[stage_]);
  }
  cut_among(layout_.owners);
  buffers_ = rank ? buffer_layout(*made_.model, buffers) : buffers;
}

std::vector<SharedTensor> TrainSetup::shared_tensors() const {
  std::vector<SharedTensor> shared;
  for (UnitId unit = 0; unit < layout_.units.size(); ++unit)
    for (const TensorLayout& tensor : layout_.units[unit].tensors)
      if (const auto found = whole_.shared.find(tensor.spec.name);
          found != whole_.shared.end() && layout_.units[unit].trained)
        shared.push_back({unit, {tensor.offset, tensor.offset + tensor.spec.elements()}, found->second});
  return shared;
}

TrainSetup::TrainSetup(const JobOptions& job, const Registries& registries, const optim::OptimizerRegistry& optimizers,
                       Samples samples)
    : job_(job), registries_(&registries), step_callbacks_(registries.step_callbacks) {
  strategy_ = make_strategy_kind(registries, "--strategy", job.strategy, job.model);
  if (strategy_->servers && strategy_->at_owner) {
    if (job.optimizer_on == "worker")
      fail(ErrorKind::usage, "--optimizer-on worker: --strategy {}: its workers keep no gradient", job.strategy);
  }
  if (job.tensor > 1) make_job_model(job, registries, {0, job.tensor});  // throws if the model cannot be divided
  made_ = make_job_model(job, registries, {});
  check_tables(job, *strategy_, *made_.model, samples == Samples::planned);
  layout_ = made_.flat->layout(owners());
  if (strategy_->servers && strategy_->at_owner) layout_.pushes = job.accumulate;
  layout_.parameter_type = parse_precision("--precision", job.precision);
  layout_.gradient_type =
      job.comm_dtype.empty() ? layout_.parameter_type : parse_precision("--comm-dtype", job.comm_dtype);
  layout_.weights = server_weights(job, *strategy_, layout_);
  layout_.piece_elements = piece_elements(job, layout_);
  buffers_ = buffer_layout(*made_.model);
  describe_whole();
  check_stages_of_servers(job, *strategy_, whole_);
  if (job.device == "cuda") check_device(job, *strategy_, *made_.model);
  check_size(job, layout_);
  optimizer_ = optim::make_optimizer(optimizers, job);
  check_precision(job, layout_, *optimizer_);
  check_consistency(job, *optimizer_);
  scaler_ = optim::loss_scaler(job);
  lr_ = job.lr.value_or(optimizer_->default_lr());
  if (!job.init.empty()) {
    const TensorFile file(job.init);
    check_model_of_file(file, job.model);
    match_tensors(file, tensor_specs());
  }
  data_ = samples == Samples::planned
              ? make_planned_data(needs_of(*made_.model, job), job.global_batch)
              : make_dataset(registries.datasets, Spec::parse("--data", job.data), needs_of(*made_.model, job));
  if (samples != Samples::planned) limit_evaluation(job, data_);
  layout_.tables =
      table_layouts(job, *made_.model, *data_.train, strategy_->row_servers ? job.servers : layout_.owners);
  if (!layout_.tables.empty()) check_gain(layout_.tables, row_rules_.emplace(job, optimizers));
  check_cache(job, layout_.tables);
  if (job.global_batch > data_.train->size())
    fail(ErrorKind::usage, "--global-batch {}: --data {} has only {} samples", job.global_batch, job.data,
         data_.train->size());
  steps_per_epoch_ =
      Sampler(data_.train->size(), job.global_batch, job.data_workers() * job.virtual_workers, job.seed, false)
          .batches();
  if (!job.steps && job.epochs > kMostSteps / steps_per_epoch_)
    fail(ErrorKind::usage, "--epochs {}: of {} steps each, more than {} steps", job.epochs, steps_per_epoch_,
         kMostSteps);
  steps_ = job.steps.value_or(job.epochs * steps_per_epoch_);
  schedule_ = optim::make_schedule(Spec::parse("--schedule", job.schedule), steps_);
  if (job.resume.empty()) return;
  saved_ = std::make_shared<const optim::Checkpoint>(job.resume);
  check_fits(*saved_, *this);
}

void TrainSetup::share_among(std::size_t workers) {
  if (workers == job_.workers) return;
  job_.workers = workers;
  if (strategy_->ring) cut_among(owners());
}

void TrainSetup::cut_among(std::size_t owners) {
  layout_.units = made_.flat->layout(owners).units;
  layout_.owners = owners;
}

}  // namespace psring::worker
