#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <string>

#include <psring/worker/exchange/mesh/shared_tensors.h>
#include <psring/worker/exchange/plan.h>
#include <psring/worker/model/flat_parameters.h>
#include <psring/worker/model/network.h>
#include <psring/worker/strategy/strategy.h>

namespace psring::worker {

/// The walk through a model's layers, the same for every pass and every strategy. A unit is acquired before its first
/// layer of the pass, and released after its last; in backward, its gradient is handed over once its first layer is
/// through. Backward ends with the first layer that is trained.
class Walk {
 public:
  /// REQUIRES: all of it outlives the walk.
  Walk(const Plan& plan, const World& world, const FlatModel& flat, Network& network, Strategy& strategy,
       SharedTensors* shared = nullptr);

  /// Calls `visit` with each layer of the pass, in its order, while the layer's unit is readable.
  void go(Pass pass, Micro micro, const std::function<void(std::size_t layer)>& visit);

  /// Computes one layer. If the layer throws, the exception names the layer. REQUIRES: called within a visit. `name`:
  /// the name in the trace.
  void forward_layer(std::size_t layer, const char* name, bool training, std::span<const std::span<float>> buffers);
  void backward_layer(std::size_t layer);

  /// Hands over the gradients of units with tensors that several stages hold, after a step's last backward pass: these
  /// are complete once the stages have summed them.
  void hand_over_shared(Micro micro);

  /// The next backward pass overwrites all gradients; later ones add to them.
  void begin_gradients() { binding_.reset_fresh(); }

 private:
  Range layers_of(UnitId unit, Pass pass) const;
  void acquire(std::size_t layer, Pass pass);
  void release(std::size_t layer, Pass pass);
  void hand_over(std::size_t layer, Micro micro);
  std::string layer_in(std::size_t layer, const char* pass) const;
  Activity activity(const char* name, std::size_t layer) const;

  const Plan& plan_;
  const World& world_;
  const FlatModel& flat_;
  Network& network_;
  Strategy& strategy_;
  SharedTensors* const shared_;  ///< null: there are none
  Tables* const tables_;         ///< null: the model has none, or its rows are not part of a planned step
  Binding binding_;
};

}  // namespace psring::worker
