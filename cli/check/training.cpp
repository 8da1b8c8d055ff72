#include <algorithm>
#include <cmath>

#include <psring/cli/check/training.h>

namespace psring::cli {
namespace {

constexpr double kTolerance = 1e-4;

/// Returns whether a worker has ended in the values of the function `expected`, in the elements [first, last).
template <class Expected>
bool ended_in(const TrainedWorker& worker, std::size_t first, std::size_t last, const Expected& expected) {
  for (std::size_t i = first; i < last; ++i)
    if (!(std::abs(worker.parameters[i] - expected(i)) <= kTolerance)) return false;
  return true;
}

/// The parameters that exact data-parallel training ends in.
std::vector<double> expected_parameters(const TrainingOptions& options) {
  std::vector<double> values;
  for (std::size_t i = 0; i < options.elements(); ++i) {
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

Message explain_ratio(std::size_t workers, double ratio) {
  const auto n = static_cast<double>(workers);
  const auto near = [&](double value) { return std::abs(ratio - value) < 0.02 * std::abs(value); };
  if (near(n))
    return {{"the update is {0} times too large: the sum over the workers was not divided by {0}",
             "更新大了 {0} 倍：各 worker 之和没有除以 {0}"},
            workers};
  if (near(1 / n))
    return {{"the update is {0} times too small: was the sum divided by {0} twice?",
             "更新小了 {0} 倍：是否除以了两次 {0}？"},
            workers};
  if (near(-1))
    return {{"the update has the wrong sign: parameters move against the gradient",
             "更新的符号错了：参数应沿梯度的反方向移动"}};
  if (std::abs(ratio) < 1e-6) return {{"the parameters have not changed", "参数没有变化"}};
  return {{"the update is {:.3g} times the expected one: which divisor, which learning rate?",
           "更新是应有的 {:.3g} 倍：除数和学习率对吗？"},
          ratio};
}

/// The ratio of found to expected update over a layer, the elements [first, last); NaN if they are not in proportion.
double ratio_of(const TrainedWorker& worker, const std::vector<double>& expected, std::size_t first, std::size_t last) {
  double ratio = std::nan("");
  for (std::size_t i = first; i < last; ++i) {
    const double right = expected[i] - initial(i);
    const double update = double{worker.parameters[i]} - initial(i);
    if (std::abs(right) < 1e-6) continue;
    if (std::isnan(ratio)) ratio = update / right;
    if (std::abs(update / right - ratio) > 0.02 * std::max(1.0, std::abs(ratio))) return std::nan("");
  }
  return ratio;
}

/// Says which parts of the parameters, one for each worker, were not updated or not gathered. Empty: there is another
/// mistake, or the workers have not reduced their gradients in parts.
Message explain_parts(const Trained& trained, const std::vector<double>& expected) {
  const std::size_t n = trained.workers.size();
  const std::vector<Handed>& handed = trained.workers[0].handed;
  if (n == 1 || expected.size() % n != 0 || std::none_of(handed.begin(), handed.end(), [](const Handed& each) {
        return each.collective == ring::Collective::reduce_scatter;
      }))
    return {};
  const std::size_t each = expected.size() / n;
  bool own_only = true;
  std::vector<std::size_t> unchanged(n);  // by part: the workers at which it has not changed
  for (std::size_t worker = 0; worker < n; ++worker)
    for (std::size_t part = 0; part < n; ++part) {
      const auto is = [&](const auto& values) {
        return ended_in(trained.workers[worker], part * each, (part + 1) * each, values);
      };
      const bool right = is([&](std::size_t i) { return expected[i]; });
      const bool old = !right && is(initial);
      if (!right && !old) return {};
      own_only = own_only && right == (part == worker);
      unchanged[part] += old ? 1 : 0;
    }
  if (own_only)
    return {
        {"every worker has updated its own part only: gather the updated parts, so that all workers have all "
         "parameters",
         "每个 worker 只更新了自己的部分：请收集更新后的各部分，让每个 worker 都有全部参数"}};
  const auto part = static_cast<std::size_t>(std::find(unchanged.begin(), unchanged.end(), n) - unchanged.begin());
  if (part == n) return {};
  return {
      {"the part of worker {0}, elements [{1}, {2}) of all parameters, has not changed at any worker: worker {0} has "
       "to update its own part before the gather",
       "worker {0} 的部分，即全部参数中的元素 [{1}, {2})，在每个 worker 上都没有变化：worker {0} 必须在收集之前更新"
       "自己的部分"},
      part,
      part * each,
      (part + 1) * each};
}

/// The likely mistake behind wrong parameters of a worker's layer, the elements [first, last).
Message cause_of(const TrainingOptions& options, const Trained& trained, const std::vector<double>& expected,
                 std::size_t worker, std::size_t first, std::size_t last) {
  const TrainedWorker& found = trained.workers[worker];
  if (std::any_of(&found.parameters[first], &found.parameters[last], [](float value) { return std::isnan(value); }))
    return {
        {"they are not numbers: values were read before their operation was waited for, or outside of the worker's "
         "part",
         "它们不是数：在等到操作完成之前读取了数值，或读取了自己的部分之外的数值"}};
  if (options.steps > 1) {  // the first step was right
    TrainingOptions forgetful = options;
    forgetful.momentum = 0;
    const std::vector<double> forgot = expected_parameters(forgetful);
    const auto is_forgetful = [&](const TrainedWorker& each) {
      return ended_in(each, 0, forgot.size(), [&](std::size_t i) { return forgot[i]; });
    };
    if (options.momentum > 0 && std::all_of(trained.workers.begin(), trained.workers.end(), is_forgetful))
      return {{"each step begins with a momentum of 0: keep the momentum in state(...), which lasts from step to step",
               "每一步的动量都从 0 开始：请把动量保存在 state(...) 里，它会从一步留到下一步"}};
    return {{"the first step is right; what does the next one start from?", "第一步是对的；下一步从什么值开始？"}};
  }
  if (Message parts = explain_parts(trained, expected); !parts.empty()) return parts;
  const auto alone = [&](std::size_t i) { return initial(i) - kLearningRate * (initial(i) - target(worker, i)); };
  if (options.workers > 1 && ended_in(found, first, last, alone))
    return {{"it was updated with this worker's own gradient: the gradients of the others are missing",
             "它只用该 worker 自己的梯度更新：缺少其他 worker 的梯度"}};
  const double ratio = ratio_of(found, expected, first, last);
  if (!std::isnan(ratio)) return explain_ratio(options.workers, ratio);
  return {{"the update is no multiple of the mean gradient: is every element of the layer reduced once?",
           "更新不是平均梯度的倍数：该层的每个元素是否恰好归约了一次？"}};
}

void require_right(const TrainingOptions& options, const Trained& trained) {
  require_ended(options, trained);
  const std::vector<double> expected = expected_parameters(options);
  for (std::size_t worker = 0; worker < options.workers; ++worker)
    for (std::size_t layer = 0, first = 0; layer < options.layers.size(); first += options.layers[layer++]) {
      const std::size_t last = first + options.layers[layer];
      for (std::size_t i = first; i < last; ++i) {
        const float found = trained.workers[worker].parameters[i];
        if (std::abs(found - expected[i]) <= kTolerance) continue;
        refuse({"n = {}, after {} steps: worker {}, layer {}, element {}, byte {} of its parameters is {}, not "
                "{:.6g}; {}",
                "n = {}，{} 步之后：worker {}，第 {} 层，元素 {}，参数的第 {} 字节是 {}，应为 {:.6g}；{}"},
               options.workers, options.steps, worker, layer, i - first, (i - first) * sizeof(float), found,
               expected[i], cause_of(options, trained, expected, worker, first, last));
      }
    }
}

}  // namespace

void ddp_step(exercise::Worker& worker, std::size_t most) {
  struct Bucket {
    std::size_t first;
    std::size_t last;
    exercise::Operation operation;
  };
  std::vector<Bucket> buckets;
  worker.forward();
  for (std::size_t layer = worker.layers(), last = layer; layer-- > 0;) {
    worker.backward(layer);
    const std::span<float> values = worker.gradients(layer, last);
    if (values.size() < most && layer > 0) continue;
    buckets.push_back({layer, last, worker.start_all_reduce(values)});
    last = layer;
  }
  for (const Bucket& bucket : buckets) {
    worker.wait(bucket.operation);
    const std::span<float> gradients = worker.gradients(bucket.first, bucket.last);
    const std::span<float> parameters = worker.parameters(bucket.first, bucket.last);
    for (std::size_t i = 0; i < gradients.size(); ++i)
      parameters[i] -= worker.learning_rate() * gradients[i] / static_cast<float>(worker.size());
  }
}

TrainStep train_step_of(const Submission& submission) {
  return submission.solution->function<void(exercise::Worker&)>("train_step");
}

void require_ended(const TrainingOptions& options, const Trained& trained) {
  trained.end.require_good(options.workers,
                           {"deadlock of {} workers: {}. Does every worker start the same operations?",
                            "{} 个 worker 死锁：{}。每个 worker 是否都启动了相同的操作？"},
                           {"n = {}: {}", "n = {}：{}"});
  for (std::size_t worker = 0; worker < options.workers; ++worker)
    if (const std::string& missing = trained.workers[worker].unwaited; !missing.empty())
      refuse({"n = {}: worker {} started operations and never waited for them; missing: {}",
              "n = {}：worker {} 启动了操作，却从未等待；缺少：{}"},
             options.workers, worker, missing);
}

Trained judge_training(const Submission& submission, TrainingOptions options,
                       const std::function<void(const Trained&)>& more) {
  options.label = submission.file.filename().string();
  const auto judge = [&](TrainingOptions job, const auto& inspect) {
    const auto run = [&](std::optional<Language> record) {
      job.record = record;
      return train(job, train_step_of(submission));
    };
    return judge_run(submission, run, inspect);
  };
  return judge(options, [&](const Trained& trained) {
    try {
      require_right(options, trained);
    } catch (const Mistake&) {
      TrainingOptions first = options;
      first.steps = 1;
      // If the first step is wrong already, its cause is clearer.
      if (options.steps > 1) judge(first, [&](const Trained& once) { require_right(first, once); });
      throw;
    }
    more(trained);
  });
}

}  // namespace psring::cli
