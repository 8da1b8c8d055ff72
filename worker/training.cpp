#include <algorithm>
#include <numeric>
#include <utility>

#include <unistd.h>

#include <psring/common/base/error.h>
#include <psring/common/base/extension.h>
#include <psring/common/base/pieces.h>
#include <psring/common/net/link_shaping.h>
#include <psring/optim/job_optimizer.h>
#include <psring/optim/norm.h>
#include <psring/worker/checkpoints.h>
#include <psring/worker/model/device/device_network.h>
#include <psring/worker/model/host_network.h>
#include <psring/worker/model/safetensors.h>
#include <psring/worker/training.h>

namespace psring::worker {
namespace {

std::string strategy_name(const JobOptions& job) { return fmt::format("strategy {}", job.strategy); }

DataNeeds needs_of(const Model& model, const JobOptions& job) {
  return {.input_cols = model.input_cols,
          .rows_per_sample = model.rows_per_sample,
          .classes = model.classes,
          .tokens = model.tokens,
          .targets = model.classes > 0,
          .seed = job.seed,
          .model = job.model};
}

std::vector<TensorSpec> specs_of(const Layout& layout) {
  std::vector<TensorSpec> specs;
  for (const UnitLayout& unit : layout.units)
    for (const TensorSlot& tensor : unit.tensors) specs.push_back(tensor.spec);
  return specs;
}

/// What a file that a run starts from has to hold.
std::vector<TensorSpec> specs_of(const TrainSetup& setup) {
  std::vector<TensorSpec> specs = specs_of(setup.layout());
  for (const TensorSlot& buffer : setup.buffers().tensors) specs.push_back(buffer.spec);
  return specs;
}

constexpr std::uint64_t kMostSteps = std::uint64_t{1} << 32;  // random numbers take a step of 32 bits

/// What a shaped link carries in 5 ms: a step ends with the answers to its last piece, so where a link is slow, pieces
/// are small.
std::size_t piece_elements(const JobOptions& job) {
  if (job.link.empty()) return kPieceElements;
  const double elements = net::parse_link(job.link).bits_per_second * 0.005 / (8 * sizeof(float));
  const auto whole = static_cast<std::size_t>(std::min(elements, 1e9)) / kCut * kCut;
  return std::clamp(whole, kLeastPieceElements, kPieceElements);
}

/// No strategy computes without the values of a layer and their gradients, so what does not hold the parameters once
/// will not train them. In floating point: the number of elements itself may not fit into any integer.
void check_size(const JobOptions& job, const Layout& layout) {
  double bytes = 0;
  for (const TensorSpec& spec : specs_of(layout))
    bytes += std::accumulate(spec.shape.begin(), spec.shape.end(), double{sizeof(float)},
                             [](double product, std::size_t extent) { return product * static_cast<double>(extent); });
  const double memory = static_cast<double>(::sysconf(_SC_PHYS_PAGES)) * static_cast<double>(::sysconf(_SC_PAGESIZE));
  constexpr double kGiB = 1 << 30;
  if (bytes > memory)
    fail(ErrorKind::data, "--model {}: its parameters take {:.6g} GiB, this host has {:.4g} GiB of memory", job.model,
         bytes / kGiB, memory / kGiB);
}

DType parse_precision(const char* flag, const std::string& name) {
  if (name != "f32" && name != "bf16" && name != "f16")
    fail(ErrorKind::usage, "{}: expected f32, bf16 or f16, got '{}'", flag, name);
  return parse_dtype(flag, name);
}

/// What is compressed by itself: pieces, as servers take them; what an owner has of a unit, owner by owner, as each is
/// sent what is its own; or whole units.
std::vector<Compressor::Part> pushed_parts(const TrainSetup& setup) {
  const Layout& layout = setup.layout();
  std::vector<Compressor::Part> parts;
  if (setup.strategy().servers) {
    for (const Piece& piece : make_pieces(layout))
      if (layout.units[piece.unit].trained) parts.push_back({piece.unit, piece.range});
  } else if (setup.strategy().stage > 0) {
    for (std::size_t owner = 0; owner < layout.owners; ++owner)
      for (const std::size_t unit : layout.trained()) parts.push_back({unit, layout.partition(unit).range(owner)});
  } else {
    for (const std::size_t unit : layout.trained()) parts.push_back({unit, {0, layout.units[unit].elements}});
  }
  return parts;
}

/// What has no GPU form is refused, not computed elsewhere.
void check_device(const JobOptions& job, const StrategyKind& strategy) {
  require_cuda();
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

void check_precision(const JobOptions& job, const Layout& layout, const optim::Optimizer& optimizer) {
  if (!optimizer.layerwise()) return;
  if (layout.gradient_type != DType::f32)
    fail(ErrorKind::usage, "--optimizer {}: its directions take the gradients' place, and need f32: --comm-dtype f32",
         job.optimizer);
  if (layout.parameter_type != DType::f32 && !job.master_copy)
    fail(ErrorKind::usage, "--optimizer {}: --precision {} needs --master-copy on", job.optimizer, job.precision);
}

}  // namespace

TrainSetup::TrainSetup(const JobOptions& job, const Registries& registries, const optim::OptimizerRegistry& optimizers)
    : job_(job) {
  strategy_ = registries.strategies.make(Spec::parse("--strategy", job.strategy));
  if (strategy_->servers && strategy_->at_owner) {
    if (job.optimizer_on == "worker")
      fail(ErrorKind::usage, "--optimizer-on worker: --strategy {}: its workers keep no gradient", job.strategy);
  }
  model_ = registries.models.make(Spec::parse("--model", job.model));
  flat_ = std::make_unique<FlatModel>(*model_, group_layers(*model_, job.units));
  if (!job.freeze.empty()) flat_->freeze(listed_units(*flat_, job.freeze));
  const std::size_t among_workers = job.shard_owners().value_or(job.workers);
  layout_ = flat_->layout(strategy_->servers ? job.servers : strategy_->ring ? among_workers : 1);
  layout_.piece_elements = piece_elements(job);
  if (strategy_->servers && strategy_->at_owner) layout_.pushes = job.accumulate;
  layout_.parameter_type = parse_precision("--precision", job.precision);
  layout_.gradient_type =
      job.comm_dtype.empty() ? layout_.parameter_type : parse_precision("--comm-dtype", job.comm_dtype);
  buffers_ = buffer_layout(*model_);
  if (job.device == "cuda") check_device(job, *strategy_);
  check_size(job, layout_);
  optimizer_ = optim::make_optimizer(optimizers, job);
  check_precision(job, layout_, *optimizer_);
  check_consistency(job, *optimizer_);
  scaler_ = optim::loss_scaler(job);
  lr_ = job.lr.value_or(optimizer_->default_lr());
  if (!job.init.empty()) match_tensors(TensorFile(job.init), specs_of(*this));
  data_ = make_dataset(registries.datasets, Spec::parse("--data", job.data), needs_of(*model_, job));
  if (job.global_batch > data_.train->size())
    fail(ErrorKind::usage, "--global-batch {}: --data {} has only {} samples", job.global_batch, job.data,
         data_.train->size());
  steps_per_epoch_ =
      Sampler(data_.train->size(), job.global_batch, job.workers * job.virtual_workers, job.seed, false).batches();
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
  if (strategy_->ring) cut_among(job_.shard_owners().value_or(workers));
}

void TrainSetup::cut_among(std::size_t owners) {
  layout_.units = flat_->layout(owners).units;
  layout_.owners = owners;
}

Training::Training(const TrainSetup& setup, Place place, const World& world, TrainHooks hooks)
    : setup_(setup),
      hooks_(std::move(hooks)),
      units_(setup.layout().units.size()),
      buffers_(setup.model(), setup.buffers(), world.memory),
      plan_(make_plan(std::move(place))),
      world_(world) {
  const JobOptions& job = setup.job();
  for (UnitId unit = 0; unit < units_.size(); ++unit) {
    const auto layers = setup.flat().layers_of(unit);
    unit_layers_.push_back({layers.front(), layers.back() + 1});
    backward_layers_.push_back(setup.flat().backward_layers(unit));
  }
  plan_.unit_layers = unit_layers_;
  plan_.backward_layers = backward_layers_;
  world_.units = units_;
  world_.buffers = buffers_.values();
  make_compressor();
  connect_servers();
  begin_with_initial_values();
  begin_with_checkpoint();
  begin_with_kept_state();
  strategy_ = call_extension([&] { return strategy_name(job); }, [&] { return setup.strategy().make(plan_, world_); });
  if (setup.strategy().scatters && job.workers > 1)
    scatter_.emplace(*setup.data().train, *world.group, job.batch_per_worker(), world.memory, world.clock);
  kernels_ = make_cpu_kernels(job.threads, setup.layout().parameter_type);
}

Plan Training::make_plan(Place place) const {
  const JobOptions& job = setup_.job();
  const Mesh mesh{.data = job.workers};
  return {.job = job,
          .layout = setup_.layout(),
          .place = place,
          .data_rank = mesh.data_rank(place.rank),
          .workers = mesh.data,
          .steps = setup_.steps(),
          .optimizer = setup_.optimizer(),
          .consistency = parse_consistency(job.consistency, job.backup_workers),
          .remedy = parse_remedy(job.remedy),
          .survives_losses = job.goes_on()};
}

void Training::make_compressor() {
  const JobOptions& job = setup_.job();
  codec_ = world_.device != nullptr
               ? optim::make_device_codec(job.compress, job.error_feedback, *world_.device, world_.memory)
               : optim::make_codec(job.compress, job.error_feedback);
  if (!codec_) return;
  compressor_.emplace(*codec_, job.error_feedback, setup_.layout(), pushed_parts(setup_), job.seed,
                      plan_.data_rank.value, world_.memory, world_.device);
  world_.compressor = &*compressor_;
  if (!compressor_->feedback()) return;
  compressor_->follow([this] { return Abilities(*strategy_).loss_scaler(); }, plan_.optimizer.loss_scaler.active());
  keepers_ = plan_.place.pushers;
  if (keepers_.empty())
    for (std::size_t rank = 0; rank < plan_.workers; ++rank) keepers_.push_back(rank);
  plan_.keepers = keepers_;
}

void Training::connect_servers() {
  if (world_.transport == nullptr) return;
  PsClient::Options options;
  options.check = hooks_.check;
  options.first_owner = plan_.data_rank.value;
  options.codec = codec_.get();
  options.trace = &world_.trace;
  if (world_.arena != nullptr) options.mark = [arena = world_.arena](const void* at) { return arena->mark(at); };
  if (plan_.job.op_timeout > 0) options.op_timeout = from_seconds(plan_.job.op_timeout);
  client_.emplace(*world_.transport, world_.clock, setup_.layout(), std::move(options));
  world_.client = &*client_;
}

/// --init: the file's values, in place of the layout's own.
void Training::begin_with_initial_values() {
  const JobOptions& job = plan_.job;
  if (job.init.empty()) return;
  auto file = std::make_shared<TensorFile>(job.init);  // shared: std::function copies what it holds
  match_tensors(*file, specs_of(setup_));
  load_range(*file, setup_.buffers(), {0, buffers_.values().size()}, buffers_.values());
  plan_.initial = [file, &layout = setup_.layout()](UnitId unit, Range range, std::span<float> out) {
    load_range(*file, layout.units[unit], range, out);
  };
}

/// --resume: the checkpoint's values and optimizer state. Servers that apply the optimizer read theirs themselves.
void Training::begin_with_checkpoint() {
  const std::shared_ptr<const optim::Checkpoint> saved = setup_.saved();
  if (!saved) return;
  const Layout& layout = setup_.layout();
  plan_.first_step = plan_.run_first_step = saved->step();
  plan_.optimizer.loss_scaler.restore(saved->manifest().scalars);
  saved->read(setup_.buffers(), {0, buffers_.values().size()}, optim::kValues, buffers_.values());
  if (compressor_) restore_residual(*saved, setup_, keepers_, plan_.data_rank.value, *compressor_);
  if (setup_.strategy().servers && setup_.job().optimizer_on == "server") return;
  plan_.initial = [saved, &layout](UnitId unit, Range range, std::span<float> out) {
    saved->read(layout.units[unit], range, optim::kValues, out);
  };
  plan_.optimizer.initial_state = [saved, &layout](UnitId unit, Range range, std::size_t slot, std::span<float> out) {
    saved->read(layout.units[unit], range, optim::slot_array(slot), out);
  };
}

/// After a regroup: the state of the worker that has come furthest.
void Training::begin_with_kept_state() {
  if (hooks_.kept == nullptr) return;
  share_newest(*world_.group, setup_.layout(), plan_.optimizer.rule->slots(), plan_.optimizer.loss_scaler.state(),
               *hooks_.kept);
  if (*hooks_.kept) (*hooks_.kept)->restore(plan_);
}

Sampler Training::sampler() const {
  const JobOptions& job = setup_.job();
  return {setup_.data().train->size(),
          job.global_batch,
          job.workers * job.virtual_workers,
          job.seed,
          job.shuffle == "epoch",
          job.pad == "none" ? Sampler::Padding::none : Sampler::Padding::wrap};
}

Prediction Training::predict() const {
  Prediction sum = strategy_->predict();
  if (scatter_) scatter_->predict(sampler(), setup_.saved() ? setup_.saved()->step() : 0, setup_.steps(), sum);
  return sum;
}

std::unique_ptr<Network> Training::make_network() const {
  const JobOptions& job = setup_.job();
  const Layout& layout = setup_.layout();
  const Network::Options options{
      .max_batch = (job.batch_per_worker() + job.accumulate - 1) / job.accumulate,
      .types = {layout.parameter_type, layout.parameter_type, layout.gradient_type},
      .recomputed = job.activation_checkpointing == "unit" ? setup_.flat().runs() : std::vector<Range>(),
      .wanted = setup_.flat().wanted()};
  if (world_.device == nullptr) return std::make_unique<HostNetwork>(setup_.model(), *kernels_, world_.memory, options);
  return std::make_unique<DeviceNetwork>(setup_.model(), *world_.device, world_.memory, options, hooks_.kernels);
}

std::uint64_t Training::run(TrainObserver& observer) {
  const JobOptions& job = setup_.job();
  const std::unique_ptr<Network> network = make_network();
  Sampler samples = sampler();
  const std::size_t layers = setup_.flat().layers();
  Pace pace(job, plan_.data_rank.value, world_.clock,
            job.accumulate * (layers + layers - setup_.flat().first_trained_layer()));
  std::optional<std::uint64_t> reached;
  std::optional<Checkpoints> checkpoints;
  if (job.checkpoint_every > 0)
    checkpoints.emplace(setup_, plan_.data_rank.value, *strategy_, buffers_.values(), keepers_, world_.compressor);
  Trainer trainer(plan_, world_,
                  {.flat = setup_.flat(),
                   .network = *network,
                   .buffers = buffers_,
                   .rows_per_sample = setup_.model().rows_per_sample,
                   .data = setup_.data(),
                   .sampler = samples,
                   .scatter = scatter_ ? &*scatter_ : nullptr,
                   .strategy = *strategy_,
                   .pace = pace,
                   .observer = observer,
                   .begins =
                       [&](std::uint64_t step) {
                         hooks_.begins(step);
                         reached = step;
                       },
                   .may_begin = hooks_.may_begin,
                   .save = [&](std::uint64_t step) { checkpoints->save(step); },
                   .is_saved = [&](std::uint64_t step) { return checkpoints->is_saved(step); }});
  return call_extension(
      [&] { return fmt::format("{}{}", strategy_name(job), reached ? fmt::format(", step {},", *reached) : ""); },
      [&] { return trainer.run(); });
}

/// In the model's own order, whatever the units are.
std::vector<Training::Tensor> Training::tensors() const {
  std::vector<Tensor> tensors;
  for (UnitId unit = 0; unit < units_.size(); ++unit)
    for (const TensorSlot& slot : setup_.layout().units[unit].tensors) tensors.push_back({&slot, unit});
  for (const TensorSlot& slot : setup_.buffers().tensors) tensors.push_back({&slot, kNoUnit});
  std::sort(tensors.begin(), tensors.end(), [](const Tensor& a, const Tensor& b) { return a.slot->id < b.slot->id; });
  return tensors;
}

void Training::save(const std::filesystem::path& file) {
  const std::vector<Tensor> all = tensors();
  std::optional<TensorWriter> writer;
  if (!file.empty()) {
    std::vector<TensorSpec> specs;
    for (const Tensor& tensor : all) specs.push_back(tensor.slot->spec);
    writer.emplace(file.string(), specs);
  }
  std::optional<std::string> wrong;
  auto next = all.begin();
  read([&](ConstElements values) {
    bool finite = true;
    for_each_widened(values, [&](std::span<const float> part, Range) {
      finite = finite && optim::all_finite(part);
      if (writer) writer->append(part);
    });
    if (!finite && !wrong) wrong = next->slot->spec.name;
    ++next;
  });
  if (wrong)
    fail(ErrorKind::data,
         "after step {}, the last: '{}' holds NaN or infinity: the model is not saved; a lower --lr or --clip-norm may "
         "help",
         setup_.steps() - 1, *wrong);
  if (writer) writer->commit();
}

void Training::read(const std::function<void(ConstElements)>& take) {
  // A unit is there from its first tensor to its last, as in a forward pass.
  std::vector<std::size_t> left(units_.size(), 0);
  for (UnitId unit = 0; unit < units_.size(); ++unit) left[unit] = setup_.layout().units[unit].tensors.size();
  for (const auto& [slot, unit] : tensors()) {
    ConstElements values = std::span<const float>(buffers_.values());
    if (unit != kNoUnit) {
      if (left[unit] == setup_.layout().units[unit].tensors.size()) strategy_->acquire(unit, Pass::forward);
      values = units_[unit].parameters;
    }
    const OnHost host(values.subspan(slot->offset, slot->spec.elements()));
    if (world_.device != nullptr) world_.device->wait(world_.device->mark());  // all of it came
    take(host.values());
    if (unit != kNoUnit && --left[unit] == 0) strategy_->release(unit, Pass::forward);
  }
}

}  // namespace psring::worker
