#pragma once

#include <span>

#include <psring/ring/bucketer.h>
#include <psring/worker/strategy/ready_units.h>
#include <psring/worker/strategy/strategy.h>

namespace psring {
struct JobOptions;
}  // namespace psring

namespace psring::worker {

class LocalOptimizer;

/// The units in buckets, as --bucket and --bucket-order say.
ring::Bucketer make_bucketer(const Layout& layout, const JobOptions& job);

/// What strategies without servers share: the group, the time it is waited for, buffers that rank 0 lends to all.
class WorkersOnly : public Strategy {
 public:
  void quiesce() override;
  /// They are not read while training, so this gives what rank 0's buffers before each forward would.
  bool shares_buffers() const override { return true; }
  void wait_saved(std::uint64_t /*step*/) override { group().barrier().wait(); }
  /// Of a device, it is known some steps later.
  Nanoseconds waited() const override { return context_.device != nullptr ? context_.device->stalled() : waited_; }

 protected:
  explicit WorkersOnly(const Context& context);

  ring::ProcessGroup& group() const { return *context_.group; }
  /// Rank 0's values for all; start-up, which is control.
  void broadcast(Elements parameters);
  void wait(ring::Work& work);
  /// This rank's share of what the layout cuts among all, where each has whole parameters.
  std::vector<optim::StatePart> save_share(LocalOptimizer& optimizer) const;
  /// Adds what a call moves at this rank to a prediction.
  void predict_call(ring::Collective collective, std::size_t elements, DType type, const ring::Parts& parts,
                    Prediction& sum) const {
    predict_call(group(), collective, elements, type, parts, sum);
  }
  static void predict_call(const ring::ProcessGroup& group, ring::Collective collective, std::size_t elements,
                           DType type, const ring::Parts& parts, Prediction& sum);
  /// What was moved is counted: of the group, and of those that a strategy makes of it.
  virtual void account() { group().account(); }

  const Context context_;
  ReadyUnits ready_;

 private:
  void share_buffers();

  Nanoseconds waited_{0};
};

}  // namespace psring::worker
