#include <algorithm>
#include <array>
#include <memory>

#include <psring/bench/predict/planned_worker.h>
#include <psring/bench/predict/timed_job.h>
#include <psring/common/base/text/error.h>
#include <psring/worker/model/parallel/schedule.h>

namespace psring::bench {
namespace {

using Kind = worker::StageAction::Kind;

constexpr std::size_t kWarmUp = 3;
constexpr std::size_t kMeasured = 2;
constexpr std::size_t kBuffers = 2;  ///< as worker::StageLinks has for each kind of message

/// The workers of a host that are played. On hosts with several workers these are not in step: while one of them has
/// the card, another one uses the links within the host. In a mesh one worker stands for all.
std::size_t lanes_of(const TimedJob& job) {
  const std::size_t workers = job.mesh.workers_per_host;
  const bool is_one = !job.kind.ring || job.mesh.hosts <= 1 || job.job.mesh().divides_model();
  return is_one || workers > Moments::kMost ? 1 : workers;
}

/// A step with many micro-batches is played as its first ones and its last. Each of the others counts as the mean of
/// the kMean that were played last.
constexpr std::size_t kFirstMicros = 8;
constexpr std::size_t kMean = 4;

/// How long a stage, and each of its stations, has been at work.
struct Work {
  double seconds = 0;
  std::array<double, static_cast<std::size_t>(StepStation::count)> busy{};
};

/// The moments at which messages of one kind arrive, in the order of steps and micro-batches.
using Arrivals = std::vector<double>;

/// The messages between neighbours, and the moments at which a stage came to the sum of shared tensors, by step.
struct Boxes {
  explicit Boxes(std::size_t stages) : outputs(stages), gradients(stages), sums(stages) {}
  std::vector<Arrivals> outputs;    ///< by the stage that receives
  std::vector<Arrivals> gradients;  ///< by the stage that receives
  std::vector<Arrivals> sums;       ///< by stage
};

class Stage {
 public:
  Stage(const TimedJob& job, std::size_t number, const ComputePace& pace, Boxes& boxes)
      : stations_(static_cast<std::size_t>(StepStation::count), lanes_of(job)),
        job_(job),
        worker_(make_planned_worker(job_, number, pace, stations_)),
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
  double busy(std::size_t station) const { return (work().busy[station] - before_measured_.busy[station]) / kMeasured; }
  double waited() const { return (waited_ - waited_before_) / kMeasured; }

 private:
  /// Messages of one kind that this stage sends.
  struct Outgoing {
    double bytes = 0;
    bool within = true;             ///< the neighbour is on the same host
    std::vector<double> left = {};  ///< of this step: when each message had left
    Arrivals* arrivals = nullptr;
  };

  double now() const { return clock_.moments().last(); }
  /// Since the beginning, with what was not played.
  Work work() const {
    Work all{now() + left_out_.seconds};
    for (std::size_t station = 0; station < all.busy.size(); ++station)
      all.busy[station] = stations_.busy(station) + left_out_.busy[station];
    return all;
  }

  void begin_step() {
    worker_->begin_step();
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
        worker_->forward();
        return true;
      case Kind::backward:
        worker_->backward(action.micro);
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

  /// Without a pipeline, the passes of a micro-batch follow each other, and soon all take equally long.
  void leave_out_micros(std::size_t micro) {
    const std::size_t micros = job_.work.micro_batches;
    if (job_.job.pipeline > 1 || micros <= kFirstMicros + 1) return;
    if (micro + 1 == kFirstMicros - kMean) before_mean_ = work();
    if (micro + 1 != kFirstMicros) return;
    const std::size_t left = micros - kFirstMicros - 1;
    const double times = static_cast<double>(left) / kMean;
    const Work after = work();
    left_out_.seconds += times * (after.seconds - before_mean_.seconds);
    for (std::size_t station = 0; station < after.busy.size(); ++station)
      left_out_.busy[station] += times * (after.busy[station] - before_mean_.busy[station]);
    next_ += 2 * left;
  }

  void wait_until(double moment) {
    waited_ += std::max(0.0, moment - now());
    clock_.wait_until(moment);
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
    const std::vector<Leg> legs = stage_message(job_, out.bytes, out.within);
    const double arrived = stations_.end_of(stations_.submit(now(), {legs.front()}), clock_.moments()).last();
    if (legs.size() > 1) stations_.submit(now(), {legs.back()});
    out.left.push_back(arrived - legs.front().drain_s);
    out.arrivals->push_back(arrived);
  }

  /// Waits until all messages of the step have left.
  void end_messages() {
    for (const Outgoing* out : {&outputs_, &gradients_})
      if (!out->left.empty()) wait_until(out->left.back());
    boxes_.sums[number_].push_back(now());
  }

  /// Returns false if a stage with the same tensors has not come to the sum yet.
  bool sum_shared() {
    const std::size_t step = ends_.size();
    double begin = now();
    for (const worker::SharingStages& stages : job_.work.sharing)
      for (const std::size_t stage : stages) {
        if (boxes_.sums[stage].size() <= step) return false;
        begin = std::max(begin, boxes_.sums[stage][step]);
      }
    clock_.wait_until(begin);
    worker_->sum_shared();
    return true;
  }

  void end_step() {
    worker_->finish_step();
    ends_.push_back(work().seconds);
    next_ = 0;
    begin_step();
    if (ends_.size() != kWarmUp) return;
    waited_before_ = waited_;
    before_measured_ = work();
  }

  Stations stations_;
  const TimedJob job_;
  const std::unique_ptr<PlannedWorker> worker_;
  PlannedClock& clock_ = worker_->clock();
  const worker::StagePlan plan_;
  const std::size_t number_;
  Boxes& boxes_;
  std::size_t next_ = 0;  ///< of the plan; after it, the step's end and the sum of shared tensors
  double waited_ = 0;
  double waited_before_ = 0;
  std::vector<double> ends_;  ///< of the steps so far
  Work left_out_;
  Work before_mean_;      ///< of a long step's micro-batches
  Work before_measured_;  ///< steps
  Outgoing outputs_;
  Outgoing gradients_;
};

}  // namespace

TimedPeriod pipeline_period(std::span<const TimedJob> jobs, const ComputePace& pace) {
  Boxes boxes(jobs.size());
  std::vector<std::unique_ptr<Stage>> stages;
  for (std::size_t stage = 0; stage < jobs.size(); ++stage)
    stages.push_back(std::make_unique<Stage>(jobs[stage], stage, pace, boxes));
  for (bool moved = true; moved;) {
    moved = false;
    for (const auto& stage : stages)
      while (!stage->done() && stage->advance()) moved = true;
  }
  TimedPeriod period{.waited_s = {}};
  for (const auto& stage : stages) {
    check(stage->done(), "a stage of a played pipeline waits for ever");
    period.step_s = std::max(period.step_s, stage->period());
    for (std::size_t station = 0; station < period.busy_s.size(); ++station)
      period.busy_s[station] = std::max(period.busy_s[station], stage->busy(station));
    period.waited_s.push_back(stage->waited());
  }
  return period;
}

}  // namespace psring::bench
