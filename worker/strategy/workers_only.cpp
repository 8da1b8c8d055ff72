#include <psring/common/base/error.h>
#include <psring/common/proc/job.h>
#include <psring/worker/strategy/local_optimizer.h>
#include <psring/worker/strategy/workers_only.h>

namespace psring::worker {
namespace {

constexpr std::size_t kFirstBucketBytes = std::size_t{1} << 20;

}  // namespace

ring::Bucketer make_bucketer(const Layout& layout, const JobOptions& job) {
  std::vector<std::size_t> bytes;
  for (std::size_t unit = 0; unit < layout.units.size(); ++unit) bytes.push_back(layout.gradient_bytes(unit));
  return {bytes, job.bucket_bytes, kFirstBucketBytes,
          job.bucket_order == "forward" ? ring::BucketOrder::forward : ring::BucketOrder::reverse};
}

WorkersOnly::WorkersOnly(const Context& context) : context_(context), ready_(context.layout) {
  check(context.group != nullptr, "data-parallel workers need a group");
}

void WorkersOnly::broadcast(Elements parameters) {
  group().broadcast(parameters, 0).wait();
  share_buffers();
  account();
}

void WorkersOnly::share_buffers() {
  if (!context_.buffers.empty()) group().broadcast(context_.buffers, 0).wait();
}

/// What the others read of ours is counted once they have read it.
void WorkersOnly::quiesce() {
  share_buffers();
  group().barrier().wait();
  account();
}

std::vector<optim::StatePart> WorkersOnly::save_share(LocalOptimizer& optimizer) const {
  return optimizer.save(context_.rank, context_.workers, [this](UnitId unit, Range range) {
    return ConstElements(context_.units[unit].parameters.part(range));
  });
}

void WorkersOnly::wait(ring::Work& work) {
  const Moment start = context_.clock.now();
  work.wait();
  waited_ += context_.clock.now() - start;
}

void WorkersOnly::predict_call(const ring::ProcessGroup& group, ring::Collective collective, std::size_t elements,
                               DType type, const ring::Parts& parts, Prediction& sum) {
  const ring::Cost moved = group.predict(collective, elements, {type}, parts);
  sum.worker_sends = sum.worker_sends.value_or(0) + moved.sent;
  sum.worker_receives = sum.worker_receives.value_or(0) + moved.received;
}

}  // namespace psring::worker
