#include <algorithm>
#include <deque>
#include <limits>
#include <numeric>
#include <utility>

#include <psring/cli/check/training.h>
#include <psring/common/base/rng.h>
#include <psring/common/base/text/error.h>

namespace psring::cli {
namespace {

constexpr float kNotANumber = std::numeric_limits<float>::quiet_NaN();

/// The worker that a student's code sees.
class SimulatedWorker final : public exercise::Worker {
 public:
  SimulatedWorker(const TrainingOptions& options, RankSide& side) : options_(options), side_(side) {
    first_element_.push_back(0);
    for (const std::size_t elements : options.layers) first_element_.push_back(first_element_.back() + elements);
    for (std::size_t i = 0; i < first_element_.back(); ++i) parameters_.push_back(initial(i));
    gradients_.assign(parameters_.size(), kNotANumber);
  }

  std::size_t rank() const override { return side_.rank; }
  std::size_t size() const override { return side_.group.size(); }
  std::size_t layers() const override { return options_.layers.size(); }
  std::size_t step() const override { return step_; }
  float learning_rate() const override { return kLearningRate; }

  std::span<float> parameters(std::size_t first, std::size_t last) override {
    return part(parameters_, "parameters", first, last);
  }
  std::span<float> gradients(std::size_t first, std::size_t last) override {
    return part(gradients_, "gradients", first, last);
  }

  void forward() override {
    const Events::Span span(side_.events, {.name = "forward"});
    compute(parameters_.size());
    next_backward_ = layers();
  }
  void backward(std::size_t layer) override {
    if (next_backward_ == 0 || layer != next_backward_ - 1)
      fail(ErrorKind::usage, "backward({}): the next layer of backward is {}", layer,
           next_backward_ == 0 ? "none: call forward first, in each step" : std::to_string(next_backward_ - 1));
    --next_backward_;
    const Events::Span span(side_.events, {.name = "backward", .unit = static_cast<std::uint32_t>(layer)});
    compute(2 * options_.layers[layer]);
    for (std::size_t i = first_element_[layer]; i < first_element_[layer + 1]; ++i)
      gradients_[i] = parameters_[i] - target(rank(), i);
    side_.events.instant(GradientReady{{layer, layer + 1}, false});
  }

  exercise::Operation start_all_reduce(std::span<float> values) override {
    return start(ring::Collective::all_reduce, values);
  }
  exercise::Operation start_reduce_scatter(std::span<float> values) override {
    return start(ring::Collective::reduce_scatter, values);
  }
  exercise::Operation start_all_gather(std::span<float> values) override {
    return start(ring::Collective::all_gather, values);
  }
  void wait(exercise::Operation number) override {
    if (number >= operations_.size()) fail(ErrorKind::usage, "wait({}): no such operation was started", number);
    Started& operation = operations_[number];
    if (operation.landed) fail(ErrorKind::usage, "wait({}): the operation has ended already", number);
    side_.waits_for = name_of(number);
    {
      const Events::Span span(side_.events, {.name = "wait"});
      operation.work.wait();
    }
    side_.waits_for.clear();
    operation.landed = true;
    std::copy(operation.moved.begin(), operation.moved.end(), operation.values.begin());
    if (operation.collective == ring::Collective::reduce_scatter) poison_other_parts(operation.values);
    if (operation.collective != ring::Collective::all_gather && lies_in_gradients(operation.values))
      side_.events.instant(GradientReady{units_of(operation.values), true});
  }

  std::span<float> state(std::size_t vector, std::size_t elements) override {
    if (vector >= states_.size()) states_.resize(vector + 1);
    if (states_[vector].empty()) {
      states_[vector].assign(elements, 0.0F);
      side_.memory.book(Category::optimizer, elements * sizeof(float));
    }
    if (states_[vector].size() != elements)
      fail(ErrorKind::usage, "state({}, {}): this vector has {} elements since the first step", vector, elements,
           states_[vector].size());
    return states_[vector];
  }

  void begin_step() {
    ++step_;
    operations_.clear();
    gradients_.assign(gradients_.size(), kNotANumber);
    side_.events.begin_step(step_ - 1);
    began_ = side_.clock.now();
    computed_ = Nanoseconds{0};
  }

  /// Writes down how the step went. Lets operations that nobody waited for end, so that other workers are not held up.
  void finish_step(TrainedWorker& trained) {
    trained.handed.clear();
    std::string unwaited;
    for (std::size_t number = 0; number < operations_.size(); ++number) {
      Started& operation = operations_[number];
      trained.handed.push_back({operation.collective, operation.values.size()});
      if (operation.landed) continue;
      unwaited += (unwaited.empty() ? "" : ", ") + name_of(number);
      operation.work.wait();
    }
    if (trained.unwaited.empty()) trained.unwaited = std::move(unwaited);
    trained.parameters = parameters_;
    trained.state_elements = 0;
    for (const auto& state : states_) trained.state_elements += state.size();
    trained.ended = side_.clock.now();
    trained.exposed = trained.ended - began_ - computed_;
  }

 private:
  struct Started {
    ring::Collective collective;
    std::span<float> values;   ///< the student's, which are not numbers until `wait`
    std::vector<float> moved;  ///< what the group works on
    ring::Work work;
    bool landed = false;
  };

  exercise::Operation start(ring::Collective collective, std::span<float> values) {
    if (collective != ring::Collective::all_reduce && values.size() % size() != 0)
      fail(ErrorKind::usage, "{} of {} values: they cannot be cut into {} equal parts", to_string(collective),
           values.size(), size());
    if (options_.start_cost > Nanoseconds{0}) side_.compute(options_.start_cost);
    // A deque keeps the memory of earlier operations where it is.
    Started& operation = operations_.emplace_back(
        Started{collective, values, std::vector<float>(values.begin(), values.end()), ring::Work()});
    const Events::Topic topic(side_.events, units_of(values));
    const ring::Vector moved{std::span(operation.moved)};
    const ring::Parts parts = ring::even_parts(values.size(), size());
    operation.work = collective == ring::Collective::all_reduce       ? side_.group.all_reduce(moved, {})
                     : collective == ring::Collective::reduce_scatter ? side_.group.reduce_scatter(moved, parts, {})
                                                                      : side_.group.all_gather(moved, parts);
    std::fill(values.begin(), values.end(), kNotANumber);
    return operations_.size() - 1;
  }

  std::string name_of(std::size_t number) const {
    const Started& operation = operations_[number];
    return fmt::format("wait({}), {} of {} values", number, to_string(operation.collective), operation.values.size());
  }

  void compute(std::size_t elements) {
    const Nanoseconds duration = from_seconds(static_cast<double>(elements) / options_.elements_per_second);
    side_.compute(duration);
    computed_ += duration;
  }

  std::span<float> part(std::vector<float>& all, const char* name, std::size_t first, std::size_t last) const {
    if (first > last || last > layers())
      fail(ErrorKind::usage, "{}({}, {}): there are {} layers", name, first, last, layers());
    return std::span(all).subspan(first_element_[first], first_element_[last] - first_element_[first]);
  }

  void poison_other_parts(std::span<float> values) const {
    const std::size_t each = values.size() / size();
    for (std::size_t i = 0; i < values.size(); ++i)
      if (i / each != rank()) values[i] = kNotANumber;
  }

  bool lies_in_gradients(std::span<float> values) const {
    return values.data() >= gradients_.data() && values.data() < gradients_.data() + gradients_.size();
  }
  /// The layers whose values lie there; those of parameters and gradients count alike.
  Range units_of(std::span<float> values) const {
    const float* const base = lies_in_gradients(values) ? gradients_.data() : parameters_.data();
    const std::ptrdiff_t begin = values.data() - base;
    if (begin < 0 || begin >= static_cast<std::ptrdiff_t>(parameters_.size())) return {0, layers()};
    const auto end = static_cast<std::size_t>(begin) + values.size();
    Range units{0, layers()};
    while (units.begin + 1 < layers() && first_element_[units.begin + 1] <= static_cast<std::size_t>(begin))
      ++units.begin;
    while (units.end > units.begin + 1 && first_element_[units.end - 1] >= end) --units.end;
    return units;
  }

  const TrainingOptions& options_;
  RankSide& side_;
  std::vector<std::size_t> first_element_;  ///< by layer, and the end
  std::vector<float> parameters_;
  std::vector<float> gradients_;
  std::vector<std::vector<float>> states_;
  std::deque<Started> operations_;  ///< of this step
  std::size_t step_ = 0;
  std::size_t next_backward_ = 0;  ///< one more than the next layer
  Moment began_;
  Nanoseconds computed_{0};  ///< in this step
};

}  // namespace

float target(std::size_t worker, std::size_t element) {
  const CounterRng random({.seed = 11, .purpose = Purpose::test, .rank = static_cast<std::uint16_t>(worker)});
  return static_cast<float>(random.bits(element) % 64) - 32;
}

float initial(std::size_t element) { return static_cast<float>(element % 7) - 3; }

std::size_t TrainingOptions::elements() const { return std::accumulate(layers.begin(), layers.end(), std::size_t{0}); }

std::size_t TrainedWorker::handed_elements() const {
  std::size_t sum = 0;
  for (const Handed& each : handed) sum += each.elements;
  return sum;
}

Trained train(const TrainingOptions& options, const TrainStep& train_step) {
  RanksOptions ranks{.ranks = options.workers,
                     .seed = options.seed,
                     .link = options.link,
                     .algorithm = ring::Algorithm::ring,
                     .record = options.record,
                     .label = options.label};
  for (std::size_t layer = 0; layer < options.layers.size(); ++layer)
    ranks.units.emplace_back(fmt::format("layer {}", layer), options.layers[layer]);
  Trained trained{std::vector<TrainedWorker>(options.workers), {}};
  trained.end = run_ranks(ranks, [&](RankSide& side) {
    SimulatedWorker worker(options, side);
    for (std::size_t step = 0; step < options.steps; ++step) {
      worker.begin_step();
      const Events::Span span(side.events, {.name = "step"});
      train_step(worker);
      worker.finish_step(trained.workers[side.rank]);
    }
  });
  return trained;
}

}  // namespace psring::cli
