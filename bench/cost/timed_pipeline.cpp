#include <algorithm>

#include <psring/bench/cost/equal_micros.h>
#include <psring/bench/cost/timed_pipeline.h>
#include <psring/bench/cost/timed_walk.h>
#include <psring/common/base/error.h>
#include <psring/worker/model/parallel/schedule.h>

namespace psring::bench {
namespace {

using Kind = worker::StageAction::Kind;

constexpr std::size_t kWarmUp = 3;
constexpr std::size_t kMeasured = 2;
constexpr std::size_t kBuffers = 2;  ///< as worker::StageLinks has for each kind of message

/// Without an exchange: one worker.
class Nothing final : public TimedExchange {
 public:
  explicit Nothing(const TimedJob& job)
      : update_s_(job.update_s(static_cast<double>(job.work.layout.trained_elements()))) {}
  Moments finish(const Moments& now) override { return now + update_s_; }

 private:
  const double update_s_;
};

std::unique_ptr<TimedExchange> make_exchange(const TimedJob& job) {
  if (job.kind.ring) return make_timed_ring(job);
  return std::make_unique<Nothing>(job);
}

/// The workers of a host that are played. On hosts with several workers these are not in step: while one of them has
/// the card, another one uses the links within the host. In a mesh one worker stands for all.
std::size_t lanes_of(const TimedJob& job) {
  const std::size_t workers = job.mesh.workers_per_host;
  const bool is_one = !job.kind.ring || job.mesh.hosts <= 1 || job.job.mesh().divides_model();
  return is_one || workers > Moments::kMost ? 1 : workers;
}

/// The moments at which messages of one kind arrive, in the order of steps and micro-batches.
using Arrivals = std::vector<double>;

}  // namespace

/// The messages between neighbours, and the moments at which a stage came to the sum of shared tensors, by step.
struct TimedPipeline::Boxes {
  explicit Boxes(std::size_t stages) : outputs(stages), gradients(stages), sums(stages) {}
  std::vector<Arrivals> outputs;    ///< by the stage that receives
  std::vector<Arrivals> gradients;  ///< by the stage that receives
  std::vector<Arrivals> sums;       ///< by stage
};

class TimedPipeline::Stage {
 public:
  /// `job`: with other stations.
  Stage(const TimedJob& job, std::size_t number, double factor, double more_s, Boxes& boxes)
      : stations_(static_cast<std::size_t>(StepStation::count), lanes_of(job)),
        job_{job.job, job.kind, job.work, job.mesh, job.costs, stations_},
        exchange_(make_exchange(job_)),
        walk_(job_, *exchange_, factor, more_s),
        plan_(worker::plan_stage(worker::parse_pipeline_schedule(job.job.pipeline_schedule), number, job.job.pipeline,
                                 job.work.micro_batches)),
        number_(number),
        boxes_(boxes) {
    begin_step();
  }

  bool done() const { return ends_.size() == kWarmUp + kMeasured; }

  /// Makes the next action if it can be made now. REQUIRES: not done.
  bool advance() {
    if (next_ < plan_.size()) {
      if (!act(plan_[next_])) return false;
    } else if (next_ == plan_.size()) {
      end_messages();
    } else if (!sum_shared()) {
      return false;
    } else {
      return end_step(), true;
    }
    ++next_;
    return true;
  }

  double period() const { return (ends_.back() - ends_[kWarmUp - 1]) / kMeasured; }
  double busy(std::size_t station) const { return (all_busy(station) - busy_before_[station]) / kMeasured; }
  double waited() const { return (waited_ - waited_before_) / kMeasured; }

 private:
  /// Messages of one kind that this stage sends.
  struct Outgoing {
    double bytes = 0;
    bool within = true;             ///< the neighbour is on the same host
    std::vector<double> left = {};  ///< of this step: when each message had left
    Arrivals* arrivals = nullptr;
  };

  double all_busy(std::size_t station) const { return stations_.busy(station) + equal_micros_.busy(station); }

  void begin_step() {
    walk_.begin_step();
    equal_micros_.begin_step(now_);
    const std::size_t tensor = job_.job.tensor;
    const auto host = [&](std::size_t stage) { return stage * tensor / job_.mesh.workers_per_host; };
    const auto to = [&](std::size_t stage, double bytes, std::vector<Arrivals>& boxes) {
      return bytes > 0 ? Outgoing{.bytes = bytes, .within = host(stage) == host(number_), .arrivals = &boxes[stage]}
                       : Outgoing{};
    };
    outputs_ = to(number_ + 1, job_.work.output_bytes, boxes_.outputs);
    gradients_ = to(number_ - 1, job_.work.input_gradient_bytes, boxes_.gradients);
  }

  bool act(const worker::StageAction& action) {
    const Workload& work = job_.work;
    switch (action.kind) {
      case Kind::forward:
        now_ = walk_.forward(now_);
        return true;
      case Kind::backward:
        now_ = walk_.backward(action.micro + 1 == work.micro_batches, now_);
        leave_out_micros(action.micro);
        return true;
      case Kind::send_output:
        return send(outputs_), true;
      case Kind::send_gradient:
        return send(gradients_), true;
      case Kind::receive_input:
        return work.input_bytes <= 0 || receive(boxes_.outputs[number_], action.micro);
      case Kind::receive_gradient:
        break;
    }
    return work.output_gradient_bytes <= 0 || receive(boxes_.gradients[number_], action.micro);
  }

  /// Without a pipeline, the passes of a micro-batch follow each other. The last one is played, too.
  void leave_out_micros(std::size_t micro) {
    if (job_.job.pipeline > 1 || micro + 2 >= job_.work.micro_batches) return;
    next_ += 2 * equal_micros_.end_micro(now_, job_.work.micro_batches - micro - 2);
  }

  void wait_until(double moment) {
    waited_ += std::max(0.0, moment - now_.last());
    now_ = later(now_, Moments(moment, stations_.lanes()));
  }

  bool receive(const Arrivals& arrivals, std::size_t micro) {
    const std::size_t index = ends_.size() * job_.work.micro_batches + micro;
    if (index >= arrivals.size()) return false;
    wait_until(arrivals[index]);
    return true;
  }

  /// A message waits for a buffer: for an earlier message to leave. The workers of a tensor group send at the same
  /// time.
  void send(Outgoing& out) {
    if (out.bytes <= 0) return;
    if (out.left.size() >= kBuffers) wait_until(out.left[out.left.size() - kBuffers]);
    const StageMessage message = stage_message(job_, out.bytes, out.within);
    const double arrived = job_.stations.end_of(job_.stations.submit(now_.last(), {message.leg}), now_).last();
    if (message.work) job_.stations.submit(now_.last(), {*message.work});
    out.left.push_back(arrived - message.leg.drain_s);
    out.arrivals->push_back(arrived);
  }

  /// Waits until all messages of the step have left.
  void end_messages() {
    for (const Outgoing* out : {&outputs_, &gradients_})
      if (!out->left.empty()) wait_until(out->left.back());
    boxes_.sums[number_].push_back(now_.last());
  }

  /// Returns false if a stage with the same tensors has not come to the sum yet.
  bool sum_shared() {
    const std::size_t step = ends_.size();
    double begin = now_.last();
    for (const SharedGradient& shared : job_.work.shared)
      for (const std::size_t stage : shared.stages) {
        if (boxes_.sums[stage].size() <= step) return false;
        begin = std::max(begin, boxes_.sums[stage][step]);
      }
    std::vector<Stations::Ticket> tickets;
    for (const SharedGradient& shared : job_.work.shared)
      tickets.push_back(job_.stations.submit(Moments(begin, stations_.lanes()),
                                             stage_group(job_, shared.stages.size()).all_reduce(shared.bytes)));
    now_ = Moments(begin, stations_.lanes());
    for (const Stations::Ticket ticket : tickets) now_ = later(now_, job_.stations.end_of(ticket, now_));
    walk_.hand_over_shared(now_);
    return true;
  }

  void end_step() {
    now_ = walk_.finish(now_);
    ends_.push_back(now_.last() + equal_micros_.seconds());
    next_ = 0;
    begin_step();
    if (ends_.size() != kWarmUp) return;
    waited_before_ = waited_;
    for (std::size_t station = 0; station < busy_before_.size(); ++station) busy_before_[station] = all_busy(station);
  }

  Stations stations_;
  const TimedJob job_;
  const std::unique_ptr<TimedExchange> exchange_;
  TimedWalk walk_;
  EqualMicros equal_micros_{stations_};
  const worker::StagePlan plan_;
  const std::size_t number_;
  Boxes& boxes_;
  std::size_t next_ = 0;  ///< of the plan; after it, the step's end and the sum of shared tensors
  Moments now_{0, stations_.lanes()};
  double waited_ = 0;
  double waited_before_ = 0;
  std::vector<double> ends_;  ///< of the steps so far
  std::array<double, static_cast<std::size_t>(StepStation::count)> busy_before_{};
  Outgoing outputs_;
  Outgoing gradients_;
};

TimedPipeline::TimedPipeline(const JobOptions& job, const worker::StrategyKind& kind, std::span<const Workload> stages,
                             const Mesh& mesh, const HostCosts& costs, double factor, double more_s)
    : boxes_(std::make_unique<Boxes>(stages.size())) {
  Stations unused(0);
  for (std::size_t stage = 0; stage < stages.size(); ++stage)
    stages_.push_back(std::make_unique<Stage>(TimedJob{job, kind, stages[stage], mesh, costs, unused}, stage, factor,
                                              more_s, *boxes_));
}

TimedPipeline::~TimedPipeline() = default;

TimedPeriod TimedPipeline::play() {
  for (bool moved = true; moved;) {
    moved = false;
    for (const auto& stage : stages_)
      while (!stage->done() && stage->advance()) moved = true;
  }
  TimedPeriod period;
  for (const auto& stage : stages_) {
    check(stage->done(), "a stage of a played pipeline waits for ever");
    period.step_s = std::max(period.step_s, stage->period());
    for (std::size_t station = 0; station < period.busy_s.size(); ++station)
      period.busy_s[station] = std::max(period.busy_s[station], stage->busy(station));
    period.waited_s.push_back(stage->waited());
  }
  return period;
}

}  // namespace psring::bench
