#pragma once

#include <functional>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include <psring/worker/exchange/parts.h>
#include <psring/worker/exchange/servers/host_sum.h>
#include <psring/worker/exchange/servers/server_link.h>

namespace psring::worker {

struct OwnedElements;

/// The servers that own all ranges, reached by push and pull. Knows which version of a unit this worker wants next.
class Servers final : public Peers {
 public:
  /// Throws bug if the job has no servers. REQUIRES: plan and world outlive it.
  Servers(const Plan& plan, const World& world);

  /// Declares the layout to the servers. They make the initial values, unless a file gives them: then worker 0 sends
  /// the values of the file. The servers' answers give the first step.
  void open();
  /// The same if the servers hold no values, but only average gradients.
  void open_without_values();

  /// `source`: the line that the transfers which start through the link belong to.
  ServerLink& link(Events::Source source = Events::Source::current()) {
    world_.events.set_caller(source);
    return *link_;
  }
  HostSum& host_sum() { return host_sum_; }
  /// The step under way; between two steps, the next step.
  std::uint64_t step() const { return step_.index; }
  /// The version that the unit has after `step` updates. A frozen unit keeps the version that the run starts from; once
  /// this worker has left, it wants the values that all workers leave behind.
  std::uint64_t version_of(UnitId unit, std::uint64_t step) const;
  std::uint64_t version_of(UnitId unit) const { return version_of(unit, step_.index); }
  /// The servers' own loss scale: their answers tell for each step whether it was skipped.
  optim::LossScaler loss_scaler();

  Step first() const override { return first_; }
  void begin_step(Step step) override;
  void end_step(Step step) override;
  Step furthest(Step after) override;
  void leave() override;
  void quiesce() override { host_sum_.quiesce(); }
  void wait_saved(std::uint64_t step) override;
  Nanoseconds waited() const override { return link_->waited() + host_sum_.waited() + drained_; }
  double staleness() override;

  /// Adds a step's pushes. Only the pushers of each host push, and a server in the worker's own process is not reached
  /// over a wire.
  void predict_pushes(Prediction& sum) const;
  /// Adds a step's pulls of these units, in elements of the type, by every worker.
  void predict_pulls(std::span<const UnitId> units, DType type, Prediction& sum) const;

 private:
  /// Bytes between a worker and each server.
  struct Way {
    std::vector<std::uint64_t> by_server;
    std::uint64_t all = 0;
  };
  Way pushed_way() const;
  Way pulled_way(std::span<const UnitId> units, DType type) const;
  /// The part of the way that leaves the worker's process.
  std::uint64_t over_the_wire(const Way& way, std::size_t worker) const;

  void drain();

  const Plan& plan_;
  const World& world_;
  const std::unique_ptr<ServerLink> link_;
  HostSum host_sum_;
  Step first_;  ///< that this worker makes
  Step step_;
  std::vector<std::vector<float>> initial_;  ///< values of a file, while they may be on their way
  bool left_ = false;
  optim::LossScaler scaler_;
  std::uint64_t steps_told_ = 0;  ///< steps whose outcome scaler_ knows
  Nanoseconds drained_{0};        ///< time spent in drain
};

/// Every worker keeps all parameters; the servers update them (ps, ps-zero2). A push of a gradient asks for the new
/// values; a forward pass waits for the units that it reads.
std::unique_ptr<Parameters> make_pulled_parameters(const Plan& plan, const World& world, Servers& servers);
/// The servers apply the optimizer.
std::unique_ptr<Updates> make_server_updates(const Plan& plan, Servers& servers);

/// Sets the memory of all servers. A server books `booked` of its owned elements, and the memory that pushes and
/// answers take there (docs/formulas.md, "Memory of a server").
void set_server_memory(const Plan& plan, const std::function<std::map<Category, std::uint64_t>(OwnedElements)>& booked,
                       Prediction& sum);

}  // namespace psring::worker
