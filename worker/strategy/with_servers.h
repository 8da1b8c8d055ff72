#pragma once

#include <psring/worker/strategy/host_sum.h>
#include <psring/worker/strategy/ready_units.h>
#include <psring/worker/strategy/staging.h>
#include <psring/worker/strategy/strategy.h>

namespace psring::worker {

/// What strategies with servers share: the client, and the time it is waited for.
class WithServers : public Strategy {
 public:
  Step first(Step /*planned*/) override { return first_; }
  void begin_step(Step step) override;
  Step after(Step step) override;
  void leave() override;
  double staleness() override;
  void quiesce() override { host_sum_.quiesce(); }
  /// The servers have it all.
  std::optional<std::vector<optim::StatePart>> state() override { return std::vector<optim::StatePart>(); }
  void wait_saved(std::uint64_t step) override;
  Nanoseconds waited() const override;
  /// The servers' own scale: their answers say of each step whether it was skipped.
  optim::LossScaler loss_scaler() override;

 protected:
  explicit WithServers(const Context& context);

  PsClient& client() const { return *context_.client; }

  // The client's, from and to where this worker computes. What is pushed is compressed, if that is asked for.
  void push(UnitId unit, std::uint64_t step, ConstElements gradient, std::size_t micro);
  void push_pull(UnitId unit, std::uint64_t step, ConstElements gradient, Elements into, Staging::Values values);
  void pull(UnitId unit, std::uint64_t version, Elements into, bool start_up = false);
  void progress();
  /// See Staging::wait_copied.
  void wait_copied(UnitId unit);

  UnitBuffers& buffers(UnitId unit) const { return context_.units[unit]; }
  /// Of a unit, when so many steps were made: what is not trained stays in the version that the run starts from.
  std::uint64_t version_of(UnitId unit, std::uint64_t step) const {
    if (!context_.layout.units[unit].trained) return context_.first_step;
    return left_ ? kFinalVersion : step;
  }
  /// Pulls what is whole here.
  void pull_all() {
    for (UnitId unit = 0; unit < context_.units.size(); ++unit)
      pull(unit, version_of(unit, step_.index), buffers(unit).parameters, true);
  }
  /// On return servers have told of the step that has ended: with their values, or as they took its gradients.
  virtual void hear_of_updates() {}
  /// What is whole here is to be pulled again.
  virtual void pull_final() {}
  /// The servers take the layout, and make the initial values, unless a file gives them: then worker 0 sends it. They
  /// say where to begin, and so does step_.
  void open();
  void wait(UnitId unit, std::uint64_t version);
  void wait_acknowledged(UnitId unit);
  /// All gradients are pushed once a step, and so many bytes pulled; but for the part of a server in the worker's own
  /// process, and, with --local-reduce, by one worker of each host.
  Prediction predict_step(std::uint64_t pulled) const;
  /// What an update can change.
  std::uint64_t trained_parameter_bytes() const {
    return context_.layout.trained_elements() * size_bytes(context_.layout.parameter_type);
  }
  /// Of gradients, what leaves as it is.
  std::uint64_t uncompressed(std::uint64_t bytes) const { return context_.compressor == nullptr ? bytes : 0; }
  /// The bytes of servers that apply the optimizer.
  std::map<Category, std::uint64_t> server_memory() const;

  const Context context_;
  HostSum host_sum_;
  Step step_;
  ReadyUnits ready_;

 private:
  /// What is pushed of a gradient.
  ConstElements written(UnitId unit, std::uint64_t step, std::size_t micro, ConstElements gradient) const;

  Step first_;                               ///< that this worker makes
  std::vector<std::vector<float>> initial_;  ///< of a file, while they may be on their way
  Nanoseconds waited_{0};
  bool left_ = false;
  std::unique_ptr<Staging> staging_;  ///< null: the client reads and writes where this worker computes
  optim::LossScaler scaler_;
  std::uint64_t steps_told_ = 0;  ///< to scaler_
};

}  // namespace psring::worker
