#include <algorithm>
#include <map>
#include <numeric>
#include <utility>

#include <psring/common/base/pieces.h>
#include <psring/common/base/system/extension.h>
#include <psring/common/base/text/error.h>
#include <psring/common/proc/mesh_servers.h>
#include <psring/optim/norm.h>
#include <psring/worker/exchange/mesh/tensor_sums.h>
#include <psring/worker/exchange/whole_tensor.h>
#include <psring/worker/model/device/device_network.h>
#include <psring/worker/model/host_network.h>
#include <psring/worker/model/safetensors.h>
#include <psring/worker/model_part.h>
#include <psring/worker/state/checkpoints.h>
#include <psring/worker/training.h>

namespace psring::worker {
namespace {

std::string strategy_name(const JobOptions& job) { return fmt::format("strategy {}", job.strategy); }

/// The parts that are compressed by themselves: pieces, as servers take them; each owner's range of every unit, owner
/// by owner, as one message carries them; or whole units.
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

}  // namespace

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
  if (world_.mesh != nullptr) {
    plan_.optimizer.model_group = world_.mesh->model.get();
    setup.tensor_part().connect(*world_.mesh->tensor, world_.clock,
                                Buffer(loss_bytes(setup), Category::communication, world_.memory, world_.arena));
  }
  world_.units = units_;
  world_.buffers = buffers_.values();
  name_units();
  make_compression();
  connect_servers();
  begin_with_initial_values();
  begin_with_checkpoint();
  begin_with_kept_state();
  if (world_.mesh != nullptr) shared_.emplace(plan_, world_, setup.shared_tensors(), setup.strategy().at_owner);
  strategy_ = call_extension([&] { return strategy_name(job); }, [&] { return setup.strategy().make(plan_, world_); });
  if (setup.strategy().scatters && job.data_workers() > 1)
    scatter_.emplace(*setup.data().train, *world.group, job.batch_per_worker(), world.memory, world.clock);
  kernels_ = make_cpu_kernels(job.threads, setup.layout().parameter_type);
}

Plan Training::make_plan(Place place) const {
  const JobOptions& job = setup_.job();
  const Mesh mesh = job.mesh();
  return {.job = job,
          .layout = setup_.layout(),
          .place = place,
          .mesh = mesh,
          .data_rank = mesh.data_rank(place.rank),
          .workers = mesh.data,
          .steps = setup_.steps(),
          .optimizer = setup_.optimizer(),
          .rows = setup_.rows(),
          .consistency = parse_consistency(job.consistency, job.backup_workers),
          .remedy = parse_remedy(job.remedy),
          .passes = passes_of(plan_of_stage(setup_)),
          .held_back = held_back(setup_),
          .survives_losses = job.goes_on()};
}

void Training::name_units() {
  UnitNames units;
  for (const UnitLayout& unit : setup_.layout().units) units.names.push_back(unit.name);
  world_.events.name(std::move(units));
}

void Training::make_compression() {
  const JobOptions& job = setup_.job();
  if (!optim::compresses(job.compress)) return;
  if (job.error_feedback) {
    feedback_.emplace(setup_.layout(), world_.memory, world_.device);
    feedback_->follow([this] { return strategy_->abilities().loss_scaler(); }, plan_.optimizer.loss_scaler.active());
    world_.feedback = &*feedback_;
    keepers_ = plan_.place.pushers;
    if (keepers_.empty())
      for (std::size_t rank = 0; rank < plan_.workers; ++rank) keepers_.push_back(rank);
    plan_.keepers = keepers_;
  }
  codec_ = world_.device != nullptr ? optim::make_device_codec(job.compress, job.error_feedback, *world_.device)
                                    : optim::make_codec(job.compress, job.error_feedback);
  if (!codec_) return;
  compressor_.emplace(*codec_, world_.feedback, setup_.layout(), pushed_parts(setup_), job.seed, plan_.data_rank.value,
                      world_.memory, world_.device);
  world_.compressor = &*compressor_;
}

void Training::connect_servers() {
  if (world_.transport == nullptr) return;
  PsClient::Options options;
  options.check = hooks_.check;
  options.own_server = server_beside(plan_.job, plan_.data_rank);
  options.first_owner = options.own_server ? *options.own_server + 1 : plan_.data_rank.value;
  options.codec = codec_.get();
  options.events = &world_.events;
  if (world_.arena != nullptr) options.mark = [arena = world_.arena](const void* at) { return arena->mark(at); };
  if (plan_.job.op_timeout > 0) options.op_timeout = from_seconds(plan_.job.op_timeout);
  client_.emplace(*world_.transport, world_.clock, setup_.served_layout(), std::move(options));
  world_.client = &*client_;
}

/// --init: the file's values, in place of the layout's own.
void Training::begin_with_initial_values() {
  const JobOptions& job = plan_.job;
  if (job.init.empty()) return;
  auto file = std::make_shared<TensorFile>(job.init);  // shared: std::function copies its captures
  match_tensors(*file, setup_.tensor_specs());
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
  if (feedback_) restore_residual(*saved, setup_, keepers_, plan_.data_rank.value, *feedback_);
  plan_.saved_values = [saved](const UnitLayout& tensors, std::span<float> out) {
    const bool all = std::ranges::all_of(
        tensors.tensors, [&](const TensorLayout& tensor) { return saved->has(tensor.spec.name, tensor.spec.shape); });
    if (all) saved->read(tensors, {0, out.size()}, optim::kValues, out);
    return all;
  };
  if (setup_.strategy().servers && setup_.job().optimizer_on == "server") return;
  plan_.initial = [saved, &layout](UnitId unit, Range range, std::span<float> out) {
    saved->read(layout.units[unit], range, optim::kValues, out);
  };
  plan_.optimizer.initial_state = [saved, &layout](UnitId unit, Range range, std::size_t slot, std::span<float> out) {
    saved->read(layout.units[unit], range, optim::slot_array(slot), out);
  };
}

/// Begins with the state of the most advanced worker, after a regroup.
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
          job.data_workers() * job.virtual_workers,
          job.seed,
          job.shuffle == "epoch",
          job.pad == "none" ? Sampler::Padding::none : Sampler::Padding::wrap};
}

Prediction Training::predict() const {
  Prediction sum = strategy_->predict();
  if (scatter_) scatter_->predict(sampler(), setup_.saved() ? setup_.saved()->step() : 0, setup_.steps(), sum);
  // A strategy that predicts no memory leaves the whole process's unpredicted. A GPU's activations are not predicted.
  if (!sum.worker_memory.empty() && world_.device == nullptr)
    sum.worker_memory[Category::activations] += HostNetwork::booked_bytes(setup_.model(), options_of_network(setup_));
  if (Tables* const tables = strategy_->abilities().tables) tables->predict(key_counts(), sum);
  if (world_.mesh != nullptr) {
    StageLinks::predict(sizes_of_stage(setup_), sampler(), plan_.data_rank.value,
                        setup_.saved() ? setup_.saved()->step() : 0, setup_.steps(), sum);
    shared_->predict(sum);
    predict_tensor_part(sum);
    sum.exposed_s.reset();  // of the strategy alone: a stage waits for other stages, too
  }
  return sum;
}

void Training::predict_tensor_part(Prediction& sum) const {
  if (setup_.tensor_part().whole()) return;
  const JobOptions& job = setup_.job();
  const Network::Options network = options_of_network(setup_);
  const StagePlan actions = plan_of_stage(setup_);
  PredictedTensorSums sums(setup_.model(), network, setup_.flat().first_trained_layer(), actions, *world_.mesh->tensor);
  predict_tensor_sums(sums,
                      {.sampler = sampler(),
                       .data_rank = plan_.data_rank.value,
                       .micros = job.accumulate,
                       .first = setup_.saved() ? setup_.saved()->step() : 0,
                       .steps = setup_.steps()},
                      sum);
  sum.worker_memory[Category::communication] += loss_bytes(setup_);
  sum.same_bits = false;  // a layer's sum over parts has another order than the sum of one process
}

std::unique_ptr<Network> Training::make_network() const {
  Network::Options options = options_of_network(setup_);
  options.computed = hooks_.computed;
  if (!setup_.tensor_part().whole()) options.arena = world_.arena;
  if (world_.device == nullptr) return std::make_unique<HostNetwork>(setup_.model(), *kernels_, world_.memory, options);
  return std::make_unique<DeviceNetwork>(setup_.model(), *world_.device, world_.memory, options, hooks_.kernels);
}

std::uint64_t Training::run() {
  const JobOptions& job = setup_.job();
  const std::unique_ptr<Network> network = make_network();
  Sampler samples = sampler();
  const TrainSetup::Whole& whole = setup_.whole();
  Pace pace(job, plan_.place.rank.value, world_.clock,
            job.accumulate * (whole.layers + whole.layers - whole.first_trained_layer));
  std::optional<std::uint64_t> reached;
  std::optional<Checkpoints> checkpoints;
  if (job.checkpoint_every > 0)
    checkpoints.emplace(setup_, plan_, world_.mesh, strategy_->abilities(), buffers_.values(), keepers_,
                        world_.feedback);
  std::optional<StageLinks> links;
  if (world_.mesh != nullptr) links.emplace(sizes_of_stage(setup_), world_, dynamic_cast<HostNetwork&>(*network));
  Trainer trainer(plan_, world_,
                  {.flat = setup_.flat(),
                   .network = *network,
                   .buffers = buffers_,
                   .rows_per_sample = setup_.model().rows_per_sample,
                   .metrics = setup_.model().metrics,
                   .tables = setup_.model().tables,
                   .callbacks = setup_.step_callbacks(),
                   .data = setup_.data(),
                   .sampler = samples,
                   .scatter = scatter_ ? &*scatter_ : nullptr,
                   .strategy = *strategy_,
                   .pace = pace,
                   .actions = plan_of_stage(setup_),
                   .links = links ? &*links : nullptr,
                   .shared = shared_ ? &*shared_ : nullptr,
                   .tensor = setup_.tensor_part(),
                   .input_cols = whole.input_cols,
                   .begins =
                       [&](std::uint64_t step) {
                         hooks_.begins(step);
                         reached = step;
                       },
                   .may_begin = hooks_.may_begin,
                   .evaluation = hooks_.evaluation,
                   .save = [&](std::uint64_t step) { checkpoints->save(step); },
                   .is_saved = [&](std::uint64_t step) { return checkpoints->is_saved(step); }});
  return call_extension(
      [&] { return fmt::format("{}{}", strategy_name(job), reached ? fmt::format(", step {},", *reached) : ""); },
      [&] {
        const std::uint64_t next = trainer.run();
        evaluation_cut_ = trainer.evaluation_cut();
        next_ = next;
        return next;
      });
}

/// In the model's own order, whatever the units are.
std::vector<Training::Tensor> Training::tensors() const {
  std::map<std::string, Tensor> here;
  for (UnitId unit = 0; unit < units_.size(); ++unit)
    for (const TensorLayout& tensor : setup_.layout().units[unit].tensors) here[tensor.spec.name] = {&tensor, unit};
  for (const TensorLayout& tensor : setup_.buffers().tensors) here[tensor.spec.name] = {&tensor, kNoUnit};
  const TrainSetup::Whole& whole = setup_.whole();
  std::vector<std::size_t> order(whole.tensors.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::sort(order, {}, [&](std::size_t i) { return whole.ids[i]; });
  std::vector<Tensor> tensors;
  for (const std::size_t i : order) {
    const auto found = here.find(whole.tensors[i].name);
    tensors.push_back(found == here.end() ? Tensor() : found->second);
    tensors.back().spec = &whole.tensors[i];
    tensors.back().stage = whole.stage_of[i];
    tensors.back().type = i < whole.parameters ? setup_.layout().parameter_type : DType::f32;
  }
  return tensors;
}

void Training::save(const std::filesystem::path& file) {
  const std::vector<Tensor> all = tensors();
  std::optional<TensorWriter> writer;
  if (!file.empty()) {
    std::vector<StoredTensor> stored;
    for (const Tensor& tensor : all) stored.push_back({.name = tensor.spec->name, .shape = tensor.spec->shape});
    for (TableId table = 0; table < setup_.layout().tables.size(); ++table) {
      const TableLayout& layout = setup_.layout().tables[table];
      const std::size_t rows = key_counts().keys(table).size();
      stored.push_back({.name = layout.name + ".keys", .dtype = "U64", .shape = {rows}});
      stored.push_back({.name = layout.name + ".values", .shape = {rows, layout.width}});
    }
    writer.emplace(file.string(), stored, std::map<std::string, std::string>{{kModelKey, setup_.job().model}});
  }
  std::optional<std::string> wrong;
  auto next = all.begin();
  read([&](ConstElements values) {
    bool finite = true;
    for_each_widened(values, [&](std::span<const float> part, Range) {
      finite = finite && optim::all_finite(part);
      if (writer) writer->append(part);
    });
    if (!finite && !wrong) wrong = next->spec->name;
    ++next;
  });
  if (writer) wrong = save_rows(*writer, std::move(wrong));
  if (wrong)
    fail(ErrorKind::data, "after step {}, the last: '{}' holds NaN or infinity: the model is not saved; {}",
         setup_.steps() - 1, *wrong, not_finite_help(setup_.layout()));
  if (writer) writer->commit();
}

void Training::read(const std::function<void(ConstElements)>& take) {
  // A unit is there from its first tensor to its last, as in a forward pass.
  std::vector<std::size_t> left(units_.size(), 0);
  for (UnitId unit = 0; unit < units_.size(); ++unit) left[unit] = setup_.layout().units[unit].tensors.size();
  for (const auto& [layout, unit, spec, stage, type] : tensors()) {
    if (layout == nullptr) {  // another stage has the tensor
      take(WholeTensor(*world_.mesh, *spec, stage, nullptr, {}, type).values());
      continue;
    }
    ConstElements values = std::span<const float>(buffers_.values());
    if (unit != kNoUnit) {
      if (left[unit] == setup_.layout().units[unit].tensors.size()) strategy_->acquire(unit, Pass::forward);
      values = units_[unit].parameters;
    }
    const OnHost host(values.subspan(layout->offset, layout->spec.elements()));
    if (world_.device != nullptr) world_.device->wait(world_.device->mark());  // all of it came
    if (world_.mesh == nullptr)
      take(host.values());
    else
      take(WholeTensor(*world_.mesh, *spec, stage, layout, host.values(), type).values());
    if (unit != kNoUnit && --left[unit] == 0) strategy_->release(unit, Pass::forward);
  }
}

}  // namespace psring::worker
