#pragma once

#include <psring/worker/strategy/ready_units.h>
#include <psring/worker/strategy/strategy.h>

namespace psring::worker {

/// What strategies with servers share: the client, and the time it is waited for.
class WithServers : public Strategy {
 public:
  void begin_step(Step step) override { step_ = step; }
  Nanoseconds waited() const override { return waited_; }

 protected:
  explicit WithServers(const Context& context);

  PsClient& client() const { return *context_.client; }
  UnitBuffers& buffers(UnitId unit) const { return context_.units[unit]; }
  void wait(UnitId unit, std::uint64_t version);
  void wait_acknowledged(UnitId unit);
  /// A gradient is pushed once a step, and so many times all parameters are pulled.
  Prediction predict_step(std::size_t pulls) const;
  /// The bytes of servers that apply the optimizer.
  std::map<Category, std::uint64_t> server_memory() const;

  const Context context_;
  Step step_;
  ReadyUnits ready_;

 private:
  Nanoseconds waited_{0};
};

}  // namespace psring::worker
