#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>

#include <psring/bench/model_step.h>
#include <psring/bench/predict/fitted_costs.h>
#include <psring/bench/predict/measure.h>
#include <psring/common/base/median.h>
#include <psring/common/base/text/error.h>
#include <psring/common/base/text/spec.h>
#include <psring/server/aggregator.h>
#include <psring/worker/model/graph.h>

namespace psring::bench {
namespace {

/// Elements of vectors, from those that a cache holds to those that it does not.
const std::vector<std::size_t> kElements{1U << 12, 1U << 14, 1U << 16, 1U << 18, 1U << 20, 1U << 22};

double quantile(std::vector<double>& values, double share) {
  const auto at = static_cast<std::ptrdiff_t>(share * static_cast<double>(values.size() - 1));
  std::nth_element(values.begin(), values.begin() + at, values.end());
  return values[static_cast<std::size_t>(at)];
}

double time_of(const std::function<void()>& call) {
  const SystemClock clock;
  const Moment begin = clock.now();
  call();
  return seconds(clock.now() - begin);
}

}  // namespace

double median_seconds(const std::function<void()>& call, Nanoseconds at_least) {
  const SystemClock clock;
  std::vector<double> times;
  const Moment end = clock.now() + at_least;
  do {
    times.push_back(time_of(call));
  } while (clock.now() < end || times.size() < 3);
  return median(std::move(times));
}

void measure_layers(const worker::Model& model, std::size_t batch, DType type, Measured& into, std::size_t threads) {
  constexpr std::size_t kSteps = 7;
  constexpr std::size_t kLeast = 3;  // of a model whose steps take long, whose times vary little
  constexpr auto kLong = std::chrono::seconds(2);
  ModelStep step(model, batch, type, threads);
  std::vector<std::vector<double>> forward_s(step.layers());
  std::vector<std::vector<double>> backward_s(step.layers());
  step.run();
  const SystemClock clock;
  const Moment end = clock.now() + kLong;
  for (std::size_t i = 0; i < kSteps && (i < kLeast || clock.now() < end); ++i) {
    step.begin();
    for (std::size_t layer = 0; layer < step.layers(); ++layer)
      forward_s[layer].push_back(time_of([&] { step.forward(layer); }));
    step.loss();
    for (std::size_t layer = step.layers(); layer-- > 0;)
      backward_s[layer].push_back(time_of([&] { step.backward(layer); }));
  }
  const std::vector<worker::Shape> shapes = worker::activation_shapes(model, batch);
  for (std::size_t i = 0; i < step.layers(); ++i) {
    const auto [forward, backward] = passes_of(model, i, shapes, {.dx = i > 0}, type);
    into[forward.line()].push_back({forward.flops, median(forward_s[i]), forward.elements});
    into[backward.line()].push_back({backward.flops, median(backward_s[i]), backward.elements});
  }
}

void measure_aggregation(Measured& into) {
  constexpr std::size_t kGradients = 4;
  const auto mean = server::make_mean(Spec::parse("--aggregate", "mean"));
  for (const std::size_t elements : kElements) {
    std::vector<float> out(elements, 0.0F);
    const std::vector<std::vector<float>> gradients(kGradients, std::vector<float>(elements, 1e-3F));
    std::vector<const float*> inputs;
    for (const std::vector<float>& gradient : gradients) inputs.push_back(gradient.data());
    const double time = median_seconds([&] { mean->aggregate(inputs, out); }, std::chrono::milliseconds(30));
    into["server.aggregate"].push_back({static_cast<double>(kGradients * elements), time});
  }
}

namespace {

std::vector<TimedSize> times_of(const optim::Optimizer& rule) {
  std::vector<TimedSize> times;
  for (const std::size_t elements : kElements) {
    std::vector<float> parameters(elements, 0.1F);
    const std::vector<float> gradient(elements, 1e-3F);
    std::vector<std::vector<float>> slots(rule.slots(), std::vector<float>(elements, 1e-3F));
    optim::Optimizer::State state;
    for (std::size_t slot = 0; slot < slots.size(); ++slot) state.slot[slot] = slots[slot];
    const double time =
        median_seconds([&] { rule.apply({.count = 3, .lr = 1e-6F}, parameters, gradient, state, parameters); },
                       std::chrono::milliseconds(15));
    times.push_back({static_cast<double>(elements), time});
  }
  return times;
}

}  // namespace

void measure_updates(const optim::OptimizerRegistry& optimizers, Measured& into, const std::set<std::string>& only) {
  for (const std::string& name : optimizers.list()) {
    const auto rule = optimizers.make(Spec::parse("--optimizer", name), {});
    const std::string line = update_line(name, *rule);
    if (into.contains(line) || (!only.empty() && !only.contains(line))) continue;
    into[line] = times_of(*rule);
  }
}

void measure_copies(Measured& into) {
  for (std::size_t bytes = std::size_t{1} << 12; bytes <= std::size_t{1} << 26; bytes *= 4) {
    const std::vector<char> from(bytes, 1);
    std::vector<char> to(bytes, 0);
    const double time =
        median_seconds([&] { std::memcpy(to.data(), from.data(), bytes); }, std::chrono::milliseconds(20));
    into["memory.copy"].push_back({static_cast<double>(bytes), time});
  }
}

std::map<std::string, CostLine> fit_lines(const Measured& measured) {
  std::map<std::string, CostLine> lines;
  for (const auto& [name, points] : measured) {
    const bool by_elements = name.starts_with("update.") || name.starts_with("server.");
    lines[name] = fit_line(points, name.starts_with("compute.") ? "FLOP" : by_elements ? "element" : "byte");
  }
  return lines;
}

double measure_deviation(const worker::Model& model, std::size_t batch) {
  constexpr std::size_t kSteps = 60;
  constexpr double kQuartiles = 1.349;  // the distance of a normal distribution's quartiles, in deviations
  ModelStep step(model, batch);
  step.run();
  std::vector<double> times;
  for (std::size_t i = 0; i < kSteps; ++i) times.push_back(time_of([&] { step.run(); }));
  return (quantile(times, 0.75) - quantile(times, 0.25)) / kQuartiles / quantile(times, 0.5);
}

double measure_sleep() {
  constexpr auto kSleep = std::chrono::milliseconds(2);
  const SystemClock clock;
  std::vector<double> late;
  for (int i = 0; i < 60; ++i) {
    const Moment until = clock.now() + kSleep;
    clock.sleep_until(until);
    late.push_back(seconds(clock.now() - until));
  }
  return median(std::move(late));
}

namespace {

/// By how much a pass is larger than a measured one.
double ratio(const LayerPass& pass, const TimedSize& measured) {
  if (measured.size > 0 && pass.flops > 0) return pass.flops / measured.size;
  return measured.elements > 0 ? pass.elements / measured.elements : 1;
}

}  // namespace

MeasuredPasses::MeasuredPasses(const worker::Model& model, std::size_t batch, DType type, std::size_t threads) {
  measure_layers(model, batch, type, passes_, threads);
}

double MeasuredPasses::seconds(const LayerPass& pass) const {
  const auto found = passes_.find(pass.line());
  if (found == passes_.end()) fail(ErrorKind::usage, "the time of {} was not measured", pass.line());
  const auto distance = [&](const TimedSize& measured) { return std::abs(std::log(ratio(pass, measured))); };
  double nearest = distance(found->second.front());
  for (const TimedSize& measured : found->second) nearest = std::min(nearest, distance(measured));
  double sum = 0;
  std::size_t count = 0;
  for (const TimedSize& measured : found->second) {
    if (distance(measured) > nearest) continue;
    sum += measured.seconds * ratio(pass, measured);
    ++count;
  }
  return sum / static_cast<double>(count);
}

double MeasuredPasses::step_s() const {
  double sum = 0;
  for (const auto& [line, passes] : passes_)
    for (const TimedSize& pass : passes) sum += pass.seconds;
  return sum;
}

}  // namespace psring::bench
