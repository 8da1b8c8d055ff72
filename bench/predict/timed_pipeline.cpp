#include <algorithm>
#include <array>
#include <cmath>
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

/// Finds out when the micro-batches of a worker's step are all alike, so that the others need not be played: when three
/// of them in turn took equally long, and left the queues of all stations equally long. What is left out is counted.
class EqualMicros {
 public:
  static constexpr std::size_t kStations = static_cast<std::size_t>(StepStation::count);

  explicit EqualMicros(const Stations& stations) : stations_(stations) {}

  void begin_step(const Moments& now) {
    played_ = 0;
    last_ = state_at(now);
  }
  /// A micro-batch has ended. `left`: micro-batches that the step may leave out. Returns how many it leaves out.
  std::size_t end_micro(const Moments& now, std::size_t left) {
    const State state = state_at(now);
    Micro micro{.seconds = now.last() - last_.now.last(), .now = now};
    for (std::size_t station = 0; station < kStations; ++station) {
      micro.busy[station] = state.busy[station] - last_.busy[station];
      micro.queued[station] = state.queued[station];
    }
    played_ = played_ > 0 && alike(micro, micro_) ? played_ + 1 : 1;
    micro_ = micro;
    last_ = state;
    constexpr std::size_t kEqual = 3;
    if (played_ < kEqual || left == 0) return 0;
    seconds_ += static_cast<double>(left) * micro.seconds;
    for (std::size_t station = 0; station < kStations; ++station)
      busy_[station] += static_cast<double>(left) * micro.busy[station];
    return left;
  }

  /// The time of the micro-batches that were left out so far, and that of a station in them.
  double seconds() const { return seconds_; }
  double busy(std::size_t station) const { return busy_[station]; }

 private:
  using ByStation = std::array<double, kStations>;
  struct State {
    Moments now;
    ByStation busy{};
    ByStation queued{};  ///< time until the station is free
  };
  struct Micro {
    double seconds = 0;
    Moments now;
    ByStation busy{};
    ByStation queued{};
  };

  State state_at(const Moments& now) const {
    State state{.now = now};
    for (std::size_t station = 0; station < stations_.count(); ++station) {
      state.busy[station] = stations_.busy(station);
      state.queued[station] = std::max(0.0, stations_.free_at(station) - now.last());
    }
    return state;
  }
  static bool alike(const Micro& a, const Micro& b) {
    const double most = 1e-9 * b.seconds;
    bool all = std::abs(a.seconds - b.seconds) <= most;
    for (std::size_t lane = 0; lane < a.now.lanes(); ++lane)
      all = all && std::abs((a.now.last() - a.now[lane]) - (b.now.last() - b.now[lane])) <= most;
    for (std::size_t station = 0; station < kStations; ++station)
      all = all && std::abs(a.busy[station] - b.busy[station]) <= most &&
            std::abs(a.queued[station] - b.queued[station]) <= most;
    return all;
  }

  const Stations& stations_;
  State last_;
  Micro micro_;
  std::size_t played_ = 0;  ///< micro-batches in turn that were alike
  double seconds_ = 0;
  ByStation busy_{};
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
        worker_(job_, number, pace, stations_),
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

  double now() const { return clock_.moments().last(); }
  double all_busy(std::size_t station) const { return stations_.busy(station) + equal_micros_.busy(station); }

  void begin_step() {
    worker_.begin_step();
    equal_micros_.begin_step(clock_.moments());
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
        worker_.forward();
        return true;
      case Kind::backward:
        worker_.backward(action.micro);
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
    next_ += 2 * equal_micros_.end_micro(clock_.moments(), job_.work.micro_batches - micro - 2);
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
    const StageMessage message = stage_message(job_, out.bytes, out.within);
    const double arrived = stations_.end_of(stations_.submit(now(), {message.leg}), clock_.moments()).last();
    if (message.work) stations_.submit(now(), {*message.work});
    out.left.push_back(arrived - message.leg.drain_s);
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
    for (const SharedGradient& shared : job_.work.shared)
      for (const std::size_t stage : shared.stages) {
        if (boxes_.sums[stage].size() <= step) return false;
        begin = std::max(begin, boxes_.sums[stage][step]);
      }
    clock_.wait_until(begin);
    worker_.sum_shared();
    return true;
  }

  void end_step() {
    worker_.finish_step();
    ends_.push_back(now() + equal_micros_.seconds());
    next_ = 0;
    begin_step();
    if (ends_.size() != kWarmUp) return;
    waited_before_ = waited_;
    for (std::size_t station = 0; station < busy_before_.size(); ++station) busy_before_[station] = all_busy(station);
  }

  Stations stations_;
  const TimedJob job_;
  PlannedWorker worker_;
  PlannedClock& clock_ = worker_.clock();
  EqualMicros equal_micros_{stations_};
  const worker::StagePlan plan_;
  const std::size_t number_;
  Boxes& boxes_;
  std::size_t next_ = 0;  ///< of the plan; after it, the step's end and the sum of shared tensors
  double waited_ = 0;
  double waited_before_ = 0;
  std::vector<double> ends_;  ///< of the steps so far
  std::array<double, static_cast<std::size_t>(StepStation::count)> busy_before_{};
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
