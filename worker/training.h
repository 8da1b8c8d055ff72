#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include <psring/common/base/text/json.h>
#include <psring/common/device/arena.h>
#include <psring/common/device/device.h>
#include <psring/common/device/kernels.h>
#include <psring/common/net/transport.h>
#include <psring/optim/checkpoint/checkpoint.h>
#include <psring/optim/optimizers.h>
#include <psring/worker/data/key_counts.h>
#include <psring/worker/exchange/mesh/shared_tensors.h>
#include <psring/worker/exchange/mesh/stage_links.h>
#include <psring/worker/model/flat_parameters.h>
#include <psring/worker/model/parallel/schedule.h>
#include <psring/worker/registries.h>
#include <psring/worker/servers/ps_client.h>
#include <psring/worker/servers/scatter.h>
#include <psring/worker/state/compressor.h>
#include <psring/worker/state/error_feedback.h>
#include <psring/worker/state/kept_state.h>
#include <psring/worker/train_setup.h>
#include <psring/worker/trainer.h>

namespace psring::worker {

class TensorKernels;
class TensorWriter;

/// The connection between a training and its process: the process sets these, and the training calls them.
struct TrainHooks {
  std::function<void()> check = {};  ///< throws if the job has failed
  /// After the first membership epoch: this worker's copy of the job's state. The most advanced worker gives its copy
  /// to all others, and they begin with it. Unchanged until the first step begins. Null: the first epoch, or servers
  /// keep the state.
  std::optional<KeptState>* kept = nullptr;
  std::function<void(std::uint64_t step)> begins = [](std::uint64_t) {};  ///< told of each step before it begins
  /// Asked before each step; false: the job ends early, before this step, in all workers.
  std::function<bool(std::uint64_t step)> may_begin = [](std::uint64_t) { return true; };
  EvaluationHooks evaluation = {};
  /// In a simulation: called after each pass of a layer, with its floating-point operations; lets virtual time pass.
  std::function<void(double flops)> computed = {};
  TensorKernels* kernels = nullptr;  ///< of layers on a device; null: make_tensor_kernels'
};

/// One worker's training, wherever its transport leads.
class Training {
 public:
  /// REQUIRES: the setup, and all objects that `world` refers to, outlive it.
  Training(const TrainSetup& setup, Place place, const World& world, TrainHooks hooks = {});

  /// Returns the step that would come next: after the last one, or the step before which the job was to end.
  std::uint64_t run();
  /// Returns whether the job was to end within the evaluation after the last step.
  bool evaluation_cut() const { return evaluation_cut_; }
  /// The state that this worker can continue with after an error in `run`; nothing if others have parts of it.
  std::optional<KeptState> keep() { return KeptState::of(strategy_->abilities(), setup_.layout()); }
  /// Writes the parameters and the layers' buffers of the whole model. A collective of all workers, each of which may
  /// name a file, or "" for none. Throws data, in all workers, if any value is not finite. REQUIRES: run() has
  /// returned.
  void save(const std::filesystem::path& file);
  /// Hands out the same values, tensor after tensor in the model's own order; a collective, too. REQUIRES: run() has
  /// returned.
  void read(const std::function<void(ConstElements)>& take);
  Prediction predict() const;
  /// Steps that the whole run has skipped, since its beginning: see optim::LossScaler. REQUIRES: run() has returned.
  std::uint64_t skipped_steps() const { return strategy_->abilities().loss_scaler().skipped(); }
  /// Figures of each table's batches in this process, and of its rows if they are here: {name, fused, batches, lookups,
  /// keys, most_keys} and optim::row_figures. `keys` are the different ones of each batch, added up.
  Json table_figures() const;
  Nanoseconds communicated() const {
    const bool by_client = client_ && setup_.strategy().servers;
    return (by_client ? client_->busy() : strategy_->abilities().waited()) + setup_.tensor_part().waited();
  }

 private:
  struct Tensor {
    const TensorLayout* layout = nullptr;  ///< of the part that this worker has; null: another stage has the tensor
    UnitId unit = kNoUnit;                 ///< kNoUnit: one of the layers' buffers
    const TensorSpec* spec = nullptr;      ///< of the whole tensor
    std::size_t stage = 0;                 ///< that holds the tensor
    DType type = DType::f32;
  };
  std::vector<Tensor> tensors() const;
  Plan make_plan(Place place) const;
  void name_units();
  void make_compression();
  void connect_servers();
  void begin_with_initial_values();
  void begin_with_checkpoint();
  void begin_with_kept_state();
  std::unique_ptr<Network> make_network() const;
  Sampler sampler() const;
  /// Counts the keys of the steps that were made; before the run, of all steps.
  const KeyCounts& key_counts() const;
  std::optional<std::string> save_rows(TensorWriter& writer, std::optional<std::string> wrong);
  void predict_tensor_part(Prediction& sum) const;

  const TrainSetup& setup_;
  const TrainHooks hooks_;
  std::vector<UnitBuffers> units_;
  std::vector<Range> unit_layers_;
  std::vector<Range> backward_layers_;
  std::vector<std::size_t> keepers_;
  LayerBuffers buffers_;
  Plan plan_;
  World world_;
  std::unique_ptr<optim::Codec> codec_;
  std::optional<ErrorFeedback> feedback_;
  std::optional<Compressor> compressor_;
  std::optional<PsClient> client_;
  std::unique_ptr<Strategy> strategy_;
  std::optional<Scatter> scatter_;
  std::optional<SharedTensors> shared_;  ///< of a mesh alone
  std::unique_ptr<Kernels> kernels_;
  bool evaluation_cut_ = false;
  std::optional<std::uint64_t> next_;                                      ///< what `run` returned
  mutable std::optional<std::pair<std::uint64_t, KeyCounts>> key_counts_;  ///< of the steps before the first number
};

}  // namespace psring::worker
