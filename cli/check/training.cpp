#include <algorithm>
#include <cmath>
#include <deque>
#include <limits>
#include <numeric>
#include <utility>

#include <psring/cli/check/training.h>
#include <psring/cli/check/training_worker.h>
#include <psring/common/base/error.h>
#include <psring/common/base/rng.h>

namespace psring::cli {
namespace {

constexpr double kTolerance = 1e-4;

std::size_t elements_of(const TrainingOptions& options) {
  return std::accumulate(options.layers.begin(), options.layers.end(), std::size_t{0});
}

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

enum class PartState : std::uint8_t { right, unchanged, other };

/// Says which parts of the parameters, one for each worker, were not updated or not gathered. "": there is another
/// mistake, or the workers have not reduced their gradients in parts.
std::string explain_parts(const TrainingOptions& options, Language language, const Trained& trained,
                          const std::vector<double>& expected) {
  const std::size_t n = options.workers;
  const auto in_parts = [](const Handed& handed) { return handed.collective == ring::Collective::reduce_scatter; };
  if (n == 1 || expected.size() % n != 0 || std::none_of(trained.handed[0].begin(), trained.handed[0].end(), in_parts))
    return "";
  const std::size_t each = expected.size() / n;
  const auto state_of = [&](std::size_t worker, std::size_t part) {
    bool right = true;
    bool unchanged = true;
    for (std::size_t i = part * each; i < (part + 1) * each; ++i) {
      right = right && std::abs(trained.parameters[worker][i] - expected[i]) <= kTolerance;
      unchanged = unchanged && trained.parameters[worker][i] == initial(i);
    }
    return right ? PartState::right : unchanged ? PartState::unchanged : PartState::other;
  };
  bool own_only = true;
  std::vector<std::size_t> unchanged(n);  // by part: the workers at which it has not changed
  for (std::size_t worker = 0; worker < n; ++worker)
    for (std::size_t part = 0; part < n; ++part) {
      const PartState state = state_of(worker, part);
      if (state == PartState::other) return "";
      own_only = own_only && (state == PartState::right) == (part == worker);
      unchanged[part] += state == PartState::unchanged ? 1 : 0;
    }
  if (own_only)
    return say(language, Text{"every worker has updated its own part only: gather the updated parts, so that all "
                              "workers have all parameters",
                              "每个 worker 只更新了自己的部分：请收集更新后的各部分，让每个 worker 都有全部参数"});
  const auto nowhere = std::find(unchanged.begin(), unchanged.end(), n) - unchanged.begin();
  if (nowhere == static_cast<std::ptrdiff_t>(n)) return "";
  const auto part = static_cast<std::size_t>(nowhere);
  return say(
      language,
      Text{"the part of worker {0}, elements [{1}, {2}) of all parameters, has not changed at any worker: worker "
           "{0} has to update its own part before the gather",
           "worker {0} 的部分，即全部参数中的元素 [{1}, {2})，在每个 worker 上都没有变化：worker {0} "
           "必须在收集之前更新自己的部分"},
      part, part * each, (part + 1) * each);
}

/// Whether all workers have ended in these parameters.
bool all_ended_in(const Trained& trained, const std::vector<double>& expected) {
  for (const std::vector<float>& parameters : trained.parameters)
    for (std::size_t i = 0; i < expected.size(); ++i)
      if (!(std::abs(parameters[i] - expected[i]) <= kTolerance)) return false;
  return true;
}

/// The mistake behind a step that is wrong although the first step was right.
std::string cause_in_later_step(const TrainingOptions& options, Language language, const Trained& trained) {
  TrainingOptions forgetful = options;
  forgetful.momentum = 0;
  if (options.momentum > 0 && all_ended_in(trained, expected_parameters(forgetful)))
    return say(language,
               Text{"each step begins with a momentum of 0: keep the momentum in state(...), which lasts from "
                    "step to step",
                    "每一步的动量都从 0 开始：请把动量保存在 state(...) 里，它会从一步留到下一步"});
  return say(language,
             Text{"the first step is right; what does the next one start from?", "第一步是对的；下一步从什么值开始？"});
}

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
  if (options.steps > 1) return cause_in_later_step(options, language, trained);
  if (std::string parts = explain_parts(options, language, trained, expected); !parts.empty()) return parts;
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
  Trained trained{std::vector<std::vector<float>>(n),
                  std::vector<std::vector<Handed>>(n),
                  std::vector<std::size_t>(n),
                  std::vector<std::string>(n),
                  std::vector<Nanoseconds>(n),
                  std::vector<Moment>(n),
                  {}};
  trained.end = run_ranks(ranks, language, [&](RankSide& side) {
    const std::unique_ptr<TrainingWorker> made = make_training_worker(options, side);
    TrainingWorker& worker = *made;
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
    trained.ended[side.rank] = side.clock.now();
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

std::string explain_failure(const TrainingOptions& options, Language language, const Trained& trained) {
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
  return "";
}

double loss_of(const TrainingOptions& options, const std::vector<float>& parameters) {
  double sum = 0;
  for (std::size_t worker = 0; worker < options.workers; ++worker)
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      const double distance = double{parameters[i]} - target(worker, i);
      sum += distance * distance / 2;
    }
  return sum / static_cast<double>(options.workers * parameters.size());
}

std::string explain_training(const TrainingOptions& options, Language language, const Trained& trained) {
  if (std::string failure = explain_failure(options, language, trained); !failure.empty()) return failure;
  const std::vector<double> expected = expected_parameters(options);
  for (std::size_t worker = 0; worker < options.workers; ++worker) {
    std::size_t first = 0;
    for (std::size_t layer = 0; layer < options.layers.size(); first += options.layers[layer++])
      for (std::size_t i = first; i < first + options.layers[layer]; ++i) {
        const float found = trained.parameters[worker][i];
        if (std::abs(found - expected[i]) <= kTolerance) continue;
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
