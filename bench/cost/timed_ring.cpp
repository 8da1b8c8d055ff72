#include <algorithm>
#include <deque>
#include <numeric>
#include <utility>

#include <psring/bench/cost/coded_gradients.h>
#include <psring/bench/cost/timed_exchange.h>
#include <psring/ring/bucketer.h>
#include <psring/worker/exchange/unit_order.h>

namespace psring::bench {

using worker::Pass;

namespace {

constexpr std::size_t kFirstBucketBytes = std::size_t{1} << 20;

/// One transfer after the other; the second one waits for no others.
Legs joined(const Legs& first, const Legs& second) {
  std::vector<Leg> legs = *first;
  for (Leg leg : *second) {
    leg.group = 0;
    legs.push_back(std::move(leg));
  }
  return std::make_shared<const std::vector<Leg>>(std::move(legs));
}

/// Base of the strategies between workers.
class Ring : public TimedExchange {
 protected:
  explicit Ring(const TimedJob& job) : job_(job), groups_(job), coded_(job.job, job.work.layout) {}

  const Layout& layout() const { return job_.work.layout; }
  double gradient_bytes(std::size_t unit) const { return static_cast<double>(layout().gradient_bytes(unit)); }
  double parameter_bytes(std::size_t unit) const { return static_cast<double>(layout().parameter_bytes(unit)); }
  std::vector<double> gradients_of(Range units) const {
    std::vector<double> bytes;
    for (std::size_t unit = units.begin; unit < units.end; ++unit) bytes.push_back(gradient_bytes(unit));
    return bytes;
  }
  Legs gather(std::size_t unit) const {
    const double bytes = parameter_bytes(unit);
    return groups_.owners.all_gather(std::span(&bytes, 1));
  }
  /// Time of the update of a worker's own part of some units.
  double update_s(Range units) const {
    double elements = 0;
    for (std::size_t unit = units.begin; unit < units.end; ++unit)
      elements += static_cast<double>(layout().trained_elements(unit));
    const double owners = job_.kind.stage == 0 ? 1 : static_cast<double>(layout().owners);
    return job_.update_s(elements / owners);
  }
  Range all() const { return {0, layout().units.size()}; }
  /// Reduces the units' gradients, and averages the owned part over the replicas.
  Legs reduction(Range units, bool and_average) const {
    const std::vector<double> gradients = gradients_of(units);
    const double bytes = std::accumulate(gradients.begin(), gradients.end(), 0.0);
    if (const auto factors = coded_.factors(units)) {
      const Legs first = groups_.owners.all_reduce(factors->first);
      return factors->second > 0 ? joined(first, groups_.owners.all_reduce(factors->second)) : first;
    }
    if (job_.kind.stage == 0 && coded_.has_codec()) {
      const double all = static_cast<double>(groups_.owners.size()) * codes(units);
      return groups_.owners.all_gather(std::span(&all, 1));
    }
    if (job_.kind.stage == 0) return groups_.owners.all_reduce(bytes);
    const Legs legs =
        coded_.has_codec() ? groups_.owners.direct(codes(units)) : groups_.owners.reduce_scatter(gradients);
    if (!and_average || groups_.replicas.size() <= 1) return legs;
    return joined(legs, groups_.replicas.all_reduce(bytes / static_cast<double>(layout().owners)));
  }
  /// The encoded bytes of one owner's ranges of the units.
  double codes(Range units) const {
    double sum = 0;
    for (std::size_t unit = units.begin; unit < units.end; ++unit)
      if (layout().units[unit].trained)
        sum += coded_.bytes(job_.kind.stage == 0 ? static_cast<double>(layout().units[unit].elements)
                                                 : static_cast<double>(layout().owned(unit, 0)));
    return sum;
  }

  const TimedJob job_;
  const TimedGroups groups_;
  const CodedGradients coded_;
};

/// ddp and zero1: gradients leave in buckets. zero1 gathers the updated ranges, bucket by bucket.
class Buckets final : public Ring {
 public:
  explicit Buckets(const TimedJob& job) : Ring(job), bucketer_(make(job)) {}

  void begin_step() override { bucketer_.begin_step(), reductions_.clear(); }
  Moments acquire(std::size_t unit, Pass pass, const Moments& at) override {
    Moments now = at;
    if (pass == Pass::forward)
      for (const auto& [units, gather] : gathers_)
        if (units.contains({unit, unit + 1})) now = later(now, job_.stations.end_of(gather, now));
    return now;
  }
  void ready(std::size_t unit, bool last_micro, const Moments& now) override {
    if (!last_micro) return;
    const std::size_t ready = bucketer_.ready(unit);
    if (job_.job.overlap) launch(ready, now);
  }
  Moments finish(const Moments& at) override {
    Moments now = at;
    launch(bucketer_.buckets().size(), now);
    for (std::size_t i = 0; i < reductions_.size(); ++i) {
      now = later(now, job_.stations.end_of(reductions_[i], now));
      if (job_.kind.stage == 0) now += update_s(bucketer_.buckets()[i]);
    }
    if (job_.kind.stage == 0) return now;
    now += update_s(all());
    gathers_.clear();
    std::vector<Range> calls = bucketer_.buckets();
    std::sort(calls.begin(), calls.end());
    for (const Range units : calls) {
      std::vector<double> bytes;
      for (std::size_t unit = units.begin; unit < units.end; ++unit)
        if (layout().units[unit].trained) bytes.push_back(parameter_bytes(unit));
      gathers_.push_back({units, job_.stations.submit(now, groups_.owners.all_gather(bytes))});
    }
    return now;
  }

 private:
  static ring::Bucketer make(const TimedJob& job) {
    std::vector<std::size_t> bytes;
    for (std::size_t unit = 0; unit < job.work.layout.units.size(); ++unit)
      bytes.push_back(job.work.layout.gradient_bytes(unit));
    return {bytes, job.job.bucket_bytes, kFirstBucketBytes,
            job.job.bucket_order == "forward" ? ring::BucketOrder::forward : ring::BucketOrder::reverse};
  }
  void launch(std::size_t until, const Moments& now) {
    while (reductions_.size() < until)
      reductions_.push_back(job_.stations.submit(now, reduction(bucketer_.buckets()[reductions_.size()], true)));
  }

  ring::Bucketer bucketer_;
  std::vector<Stations::Ticket> reductions_;
  std::vector<std::pair<Range, Stations::Ticket>> gathers_;
};

/// ddp-naive: after backward, one tensor after the other.
class Tensors final : public Ring {
 public:
  explicit Tensors(const TimedJob& job) : Ring(job) {}
  Moments finish(const Moments& at) override {
    Moments now = at;
    const double each = static_cast<double>(size_bytes(layout().gradient_type));
    for (const std::size_t unit : layout().trained())
      for (const TensorLayout& tensor : layout().units[unit].tensors) {
        const double bytes = each * static_cast<double>(tensor.spec.elements());
        now = later(now, job_.stations.end_of(job_.stations.submit(now, groups_.owners.all_reduce(bytes)), now));
      }
    return now + update_s(all());
  }
};

/// zero2 and zero3: each unit's gradient is reduced by itself, for each micro-batch. At most two whole gradients exist
/// at a time. zero3 gathers a unit's parameters for each pass.
class Sharded final : public Ring {
 public:
  explicit Sharded(const TimedJob& job) : Ring(job), gathers_(layout().units.size(), Stations::kNone) {
    for (const auto& [unit, begins] : worker::forward_events(job.work.unit_layers))
      if (begins) order_[0].push_back(unit);
    for (const auto& [unit, begins] : worker::backward_events(job.work.backward_layers))
      if (begins) order_[1].push_back(unit);
  }

  void begin_step() override {
    if (job_.kind.gathers) std::fill(gathers_.begin(), gathers_.end(), Stations::kNone);
  }
  Moments acquire(std::size_t unit, Pass pass, const Moments& at) override {
    Moments now = at;
    if (job_.kind.gathers && !job_.job.share_host_parameters)
      for (const std::size_t next : wanted(unit, pass))
        if (gathers_[next] == Stations::kNone) gathers_[next] = job_.stations.submit(now, gather(next));
    return gathers_[unit] == Stations::kNone ? now : later(now, job_.stations.end_of(gathers_[unit], now));
  }
  void release(std::size_t unit, Pass pass) override {
    const bool drops =
        pass == Pass::backward || job_.job.reshard_after_forward || job_.work.backward_layers[unit].empty();
    if (job_.kind.gathers && drops) gathers_[unit] = Stations::kNone;
  }
  Moments open(std::size_t unit, const Moments& at) override {
    Moments now = at;
    while (window_.size() > 1 || std::find(window_.begin(), window_.end(), unit) != window_.end()) {
      if (!reductions_.empty() && reductions_.front().unit == window_.front()) now = take_first(now);
      window_.pop_front();
    }
    return now;
  }
  void ready(std::size_t unit, bool last_micro, const Moments& now) override {
    reductions_.push_back({unit, last_micro, job_.stations.submit(now, reduction({unit, unit + 1}, false))});
    window_.push_back(unit);
    while (!reductions_.empty() && job_.stations.done_by(reductions_.front().ticket, now)) take_first(now);
  }
  Moments finish(const Moments& at) override {
    Moments now = at;
    window_.clear();
    while (!reductions_.empty()) now = take_first(now);
    for (const Stations::Ticket average : averages_) now = later(now, job_.stations.end_of(average, now));
    averages_.clear();
    now += update_s(all());
    if (!job_.kind.gathers)
      for (const std::size_t unit : layout().trained()) gathers_[unit] = job_.stations.submit(now, gather(unit));
    return now;
  }

 private:
  struct Reduction {
    std::size_t unit = 0;
    bool last_micro = false;
    Stations::Ticket ticket = Stations::kNone;
  };
  /// Waits for the oldest reduction, and starts the average over the replicas (worker::ShardedGradients).
  Moments take_first(Moments now) {
    const Reduction first = reductions_.front();
    reductions_.pop_front();
    now = later(now, job_.stations.end_of(first.ticket, now));
    const double bytes = gradient_bytes(first.unit) / static_cast<double>(layout().owners);
    if (first.last_micro && groups_.replicas.size() > 1)
      averages_.push_back(job_.stations.submit(now, groups_.replicas.all_reduce(bytes)));
    return now;
  }
  /// As worker::FetchSchedule: the unit and the next ones in the pass.
  std::vector<std::size_t> wanted(std::size_t unit, Pass pass) const {
    const std::vector<std::size_t>& order = order_[pass == Pass::forward ? 0 : 1];
    const auto at = std::find(order.begin(), order.end(), unit);
    const auto left = static_cast<std::size_t>(order.end() - at);
    return {at, at + static_cast<std::ptrdiff_t>(std::min(job_.job.prefetch + 1, left))};
  }

  std::vector<std::size_t> order_[2];
  std::vector<Stations::Ticket> gathers_;  ///< by unit; none: the unit is not here
  std::deque<Reduction> reductions_;
  std::vector<Stations::Ticket> averages_;
  std::deque<std::size_t> window_;  ///< units whose gradients are in flight
};

}  // namespace

std::unique_ptr<TimedExchange> make_timed_ring(const TimedJob& job) {
  if (job.kind.at_owner) return std::make_unique<Sharded>(job);
  if (job.kind.buckets) return std::make_unique<Buckets>(job);
  return std::make_unique<Tensors>(job);
}

}  // namespace psring::bench
