// Exercise 03: buckets, and all-reduces that overlap with backward.
#include <algorithm>

#include <psring/cli/check/training.h>

namespace psring::cli {
namespace {

constexpr std::size_t kLayers = 24;
constexpr double kMost = 1.2;  ///< times the best exposed communication

/// Small layers at the end, as in many models, and a link that is slower than backward.
TrainingOptions slow_link(std::size_t steps) {
  TrainingOptions options;
  options.layers.assign(kLayers, 4000);
  std::fill(options.layers.end() - 8, options.layers.end(), std::size_t{1000});
  options.steps = steps;
  options.link = {1e9, std::chrono::microseconds(50)};
  options.elements_per_second = 4e7;
  options.start_cost = std::chrono::microseconds(100);
  return options;
}

Nanoseconds longest(const Trained& trained) {
  Nanoseconds longest{0};
  for (const TrainedWorker& worker : trained.workers) longest = std::max(longest, worker.exposed);
  return longest;
}

/// The smallest exposed communication of psring's own buckets, over all sizes.
Nanoseconds best_exposed(const TrainingOptions& options) {
  Nanoseconds best = Nanoseconds::max();
  for (std::size_t most = 1000; most <= 32000; most += 1000)
    best = std::min(best, longest(train(options, [&](exercise::Worker& worker) { ddp_step(worker, most); })));
  return best;
}

void check_steps(const Submission& submission) { judge_training(submission, slow_link(3)); }

void check_exposed(const Submission& submission) {
  const TrainingOptions options = slow_link(1);
  const Nanoseconds best = best_exposed(options);
  judge_training(submission, options, [&](const Trained& trained) {
    const Nanoseconds found = longest(trained);
    if (seconds(found) <= kMost * seconds(best)) return;
    const std::size_t operations = trained.workers[0].handed.size();
    const Text hint = operations == 1 ? Text{"one all-reduce starts when backward has ended, so nothing overlaps",
                                             "唯一的 all-reduce 在反向结束后才启动，没有任何重叠"}
                      : operations >= kLayers || 2 * operations * options.start_cost > found
                          ? Text{"{} all-reduces: each start costs the worker 0.1 ms; "
                                 "put small layers together, and wait only after backward",
                                 "{} 次 all-reduce：每次启动占用 worker 0.1 ms；把小的层放在一起，反向结束后再等待"}
                          : Text{"{} all-reduces: start each bucket as soon as its gradients are complete, and wait only "
                                 "after backward; the last bucket should be small",
                                 "{} 次 all-reduce：桶的梯度一齐就启动，反向结束后再等待；最后一个桶应当小"};
    refuse({"{:.2f} ms of the step are exposed; the best buckets leave {:.2f} ms, and at most {} times that is "
            "allowed. {}",
            "一步中暴露了 {:.2f} ms；最好的桶留下 {:.2f} ms，最多允许它的 {} 倍。{}"},
           seconds(found) * 1e3, seconds(best) * 1e3, kMost, Message(hint, operations));
  });
}

}  // namespace

Exercise buckets_exercise() {
  return {3,
          "buckets",
          {"buckets, and communication that overlaps with backward", "分桶，让通信与反向重叠"},
          "start.cpp",
          {{{"three steps are right", "三步的结果正确"}, 40, check_steps, {}, true},
           {{"exposed communication of at most 1.2 times the best", "暴露的通信不超过最好结果的 1.2 倍"},
            60,
            check_exposed,
            0}}};
}

}  // namespace psring::cli
