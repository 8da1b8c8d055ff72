#include <algorithm>
#include <cmath>
#include <deque>
#include <limits>
#include <numeric>
#include <utility>

#include <psring/cli/check/training.h>
#include <psring/common/base/error.h>
#include <psring/common/base/rng.h>

namespace psring::cli {
namespace {

constexpr float kLearningRate = 0.125F;
constexpr float kNotANumber = std::numeric_limits<float>::quiet_NaN();

std::size_t elements_of(const TrainingOptions& options) {
  return std::accumulate(options.layers.begin(), options.layers.end(), std::size_t{0});
}

float target(std::size_t worker, std::size_t element) {
  const CounterRng random({.seed = 11, .purpose = Purpose::test, .rank = static_cast<std::uint16_t>(worker)});
  return static_cast<float>(random.bits(element) % 64) - 32;
}

float initial(std::size_t element) { return static_cast<float>(element % 7) - 3; }

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
    side_.events.detail(GradientReady{{layer, layer + 1}, false});
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
      side_.events.detail(GradientReady{units_of(operation.values), true});
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

  /// Lets operations that nobody waited for end, so that other workers are not held up; returns their names.
  std::string finish_step() {
    std::string names;
    for (std::size_t number = 0; number < operations_.size(); ++number) {
      if (operations_[number].landed) continue;
      names += (names.empty() ? "" : ", ") + name_of(number);
      operations_[number].work.wait();
    }
    exposed_ = side_.clock.now() - began_ - computed_;
    return names;
  }

  const std::vector<float>& all_parameters() const { return parameters_; }
  Nanoseconds exposed() const { return exposed_; }
  std::size_t state_elements() const {
    std::size_t sum = 0;
    for (const auto& state : states_) sum += state.size();
    return sum;
  }
  std::vector<Handed> handed() const {
    std::vector<Handed> list;
    for (const Started& operation : operations_) list.push_back({operation.collective, operation.values.size()});
    return list;
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
  Nanoseconds exposed_{0};
};

std::string explain_ratio(Language language, std::size_t workers, double ratio) {
  const auto n = static_cast<double>(workers);
  const auto near = [&](double value) { return std::abs(ratio - value) < 0.02 * std::abs(value); };
  if (near(n))
    return say(language,
               Text{"the update is {} times too large: the sum over the workers was not divided by {}",
                    "更新大了 {} 倍：各 worker 之和没有除以 {}"},
               workers, workers);
  if (near(1 / n))
    return say(language,
               Text{"the update is {} times too small: was the sum divided by {} twice?",
                    "更新小了 {} 倍：是否除以了两次 {}？"},
               workers, workers);
  if (near(-1))
    return say(language, Text{"the update has the wrong sign: parameters move against the gradient",
                              "更新的符号错了：参数应沿梯度的反方向移动"});
  if (std::abs(ratio) < 1e-6) return say(language, Text{"the parameters have not changed", "参数没有变化"});
  return say(language,
             Text{"the update is {:.3g} times the expected one: which divisor, which learning rate?",
                  "更新是应有的 {:.3g} 倍：除数和学习率对吗？"},
             ratio);
}

/// The ratio of found to expected update over all elements of a layer; NaN if they are not in proportion.
double ratio_of(std::span<const float> found, std::span<const double> expected, std::size_t first) {
  double ratio = std::nan("");
  for (std::size_t i = 0; i < found.size(); ++i) {
    const double right = expected[i] - initial(first + i);
    const double update = double{found[i]} - initial(first + i);
    if (std::abs(right) < 1e-6) continue;
    if (std::isnan(ratio)) ratio = update / right;
    if (std::abs(update / right - ratio) > 0.02 * std::max(1.0, std::abs(ratio))) return std::nan("");
  }
  return ratio;
}

struct Wrong {
  std::size_t worker;
  std::size_t layer;
  std::size_t first;  ///< element of the layer
};

std::string cause_of(const TrainingOptions& options, Language language, const Trained& trained,
                     const std::vector<double>& expected, const Wrong& wrong) {
  const std::size_t size = options.layers[wrong.layer];
  const std::span<const float> found = std::span(trained.parameters[wrong.worker]).subspan(wrong.first, size);
  const std::span<const double> right = std::span(expected).subspan(wrong.first, size);
  for (const float value : found)
    if (std::isnan(value))
      return say(language, Text{"they are not numbers: values were read before their operation was waited for, or "
                                "outside of the worker's part",
                                "它们不是数：在等到操作完成之前读取了数值，或读取了自己的部分之外的数值"});
  if (options.steps > 1)
    return say(language, Text{"the first step may be right; what does the next one start from?",
                              "第一步可能是对的；下一步从什么值开始？"});
  bool own = true;
  for (std::size_t i = 0; i < size; ++i) {
    const std::size_t element = wrong.first + i;
    const double alone = initial(element) - kLearningRate * (initial(element) - target(wrong.worker, element));
    own = own && std::abs(found[i] - alone) < 1e-4;
  }
  if (own && options.workers > 1)
    return say(language, Text{"it was updated with this worker's own gradient: the gradients of the others are missing",
                              "它只用该 worker 自己的梯度更新：缺少其他 worker 的梯度"});
  const double ratio = ratio_of(found, right, wrong.first);
  if (!std::isnan(ratio)) return explain_ratio(language, options.workers, ratio);
  return say(language,
             Text{"the update is no multiple of the mean gradient: is every element of the layer reduced once?",
                  "更新不是平均梯度的倍数：该层的每个元素是否恰好归约了一次？"});
}

}  // namespace

Trained train(const TrainingOptions& options, Language language, const TrainStep& train_step) {
  RanksOptions ranks{.ranks = options.workers,
                     .seed = options.seed,
                     .link = options.link,
                     .algorithm = ring::Algorithm::ring,
                     .record = options.record,
                     .label = options.label};
  for (std::size_t layer = 0; layer < options.layers.size(); ++layer)
    ranks.units.push_back({.name = fmt::format("layer {}", layer), .tensors = {}, .elements = options.layers[layer]});
  const std::size_t n = options.workers;
  Trained trained{std::vector<std::vector<float>>(n), std::vector<std::vector<Handed>>(n), std::vector<std::size_t>(n),
                  std::vector<std::string>(n),        std::vector<Nanoseconds>(n),         {}};
  trained.end = run_ranks(ranks, language, [&](RankSide& side) {
    SimulatedWorker worker(options, side);
    for (std::size_t step = 0; step < options.steps; ++step) {
      worker.begin_step();
      const Events::Span span(side.events, {.name = "step"});
      train_step(worker);
      trained.handed[side.rank] = worker.handed();
      if (std::string names = worker.finish_step(); trained.unwaited[side.rank].empty())
        trained.unwaited[side.rank] = std::move(names);
    }
    trained.parameters[side.rank] = worker.all_parameters();
    trained.state_elements[side.rank] = worker.state_elements();
    trained.exposed[side.rank] = worker.exposed();
  });
  return trained;
}

std::vector<double> expected_parameters(const TrainingOptions& options) {
  std::vector<double> values;
  for (std::size_t i = 0; i < elements_of(options); ++i) {
    double mean = 0;
    for (std::size_t worker = 0; worker < options.workers; ++worker) mean += target(worker, i);
    mean /= static_cast<double>(options.workers);
    double value = initial(i);
    double velocity = 0;
    for (std::size_t step = 0; step < options.steps; ++step) {
      velocity = options.momentum * velocity + (value - mean);
      value -= kLearningRate * velocity;
    }
    values.push_back(value);
  }
  return values;
}

std::string explain_training(const TrainingOptions& options, Language language, const Trained& trained) {
  if (!trained.end.deadlock.empty())
    return say(language,
               Text{"deadlock of {} workers: {}. Does every worker start the same operations?",
                    "{} 个 worker 死锁：{}。每个 worker 是否都启动了相同的操作？"},
               options.workers, trained.end.deadlock);
  if (!trained.end.thrown.empty())
    return say(language, Text{"n = {}: {}", "n = {}：{}"}, options.workers, trained.end.thrown);
  for (std::size_t worker = 0; worker < options.workers; ++worker)
    if (!trained.unwaited[worker].empty())
      return say(language,
                 Text{"n = {}: worker {} started operations and never waited for them; missing: {}",
                      "n = {}：worker {} 启动了操作，却从未等待；缺少：{}"},
                 options.workers, worker, trained.unwaited[worker]);
  const std::vector<double> expected = expected_parameters(options);
  for (std::size_t worker = 0; worker < options.workers; ++worker) {
    std::size_t first = 0;
    for (std::size_t layer = 0; layer < options.layers.size(); first += options.layers[layer++])
      for (std::size_t i = first; i < first + options.layers[layer]; ++i) {
        const float found = trained.parameters[worker][i];
        if (std::abs(found - expected[i]) <= 1e-4) continue;
        return say(language,
                   Text{"n = {}, after {} steps: worker {}, layer {}, element {}, byte {} of its parameters is {}, not "
                        "{:.6g}; {}",
                        "n = {}，{} 步之后：worker {}，第 {} 层，元素 {}，参数的第 {} 字节是 {}，应为 {:.6g}；{}"},
                   options.workers, options.steps, worker, layer, i - first, (i - first) * sizeof(float), found,
                   expected[i], cause_of(options, language, trained, expected, {worker, layer, first}));
      }
  }
  return "";
}

Trained judge_training(const Submission& submission, TrainingOptions options,
                       const std::function<std::string(const Trained&)>& more) {
  const TrainStep step = submission.solution->function<void(exercise::Worker&)>("train_step");
  options.label = submission.file.filename().string();
  Trained trained = train(options, submission.language, step);
  std::string mistake = explain_training(options, submission.language, trained);
  if (!mistake.empty() && options.steps > 1) {  // if the first step is wrong already, its cause is clearer
    TrainingOptions first = options;
    first.steps = 1;
    std::string cause = explain_training(first, submission.language, train(first, submission.language, step));
    if (!cause.empty()) {
      mistake = std::move(cause);
      options = first;
    }
  }
  if (mistake.empty() && more) mistake = more(trained);
  if (mistake.empty()) return trained;
  options.record = true;
  submission.scene = train(options, submission.language, step).end.scene;
  throw Mistake(mistake);
}

}  // namespace psring::cli
