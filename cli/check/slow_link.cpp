// Exercise 11: a way of one's own that beats DDP on a slow link.
#include <algorithm>

#include <psring/cli/check/training.h>

namespace psring::cli {
namespace {

constexpr double kMostTime = 0.5;   ///< of DDP's
constexpr double kMostLoss = 1.02;  ///< times DDP's

const TrainingOptions kJob = {.workers = 4,
                              .layers = {2000, 4000, 2000},
                              .steps = 48,
                              .link = {1e7, std::chrono::milliseconds(5)},
                              .elements_per_second = 4e6};

double time_of(const Trained& trained) {
  Moment last;
  for (const TrainedWorker& worker : trained.workers) last = std::max(last, worker.ended);
  return seconds(last - Moment{});
}

/// The largest loss of any worker's parameters: the mean over the targets of all workers.
double worst_loss(const Trained& trained) {
  double worst = 0;
  for (const TrainedWorker& each : trained.workers) {
    double sum = 0;
    for (std::size_t worker = 0; worker < kJob.workers; ++worker)
      for (std::size_t i = 0; i < kJob.elements(); ++i) {
        const double distance = double{each.parameters[i]} - target(worker, i);
        sum += distance * distance / 2;
      }
    worst = std::max(worst, sum / static_cast<double>(kJob.workers * kJob.elements()));
  }
  return worst;
}

Trained run_own(const Submission& submission) {
  Trained own = train(kJob, train_step_of(submission));
  require_ended(kJob, own);
  return own;
}

/// DDP with one bucket.
Trained run_ddp() {
  return train(kJob, [](exercise::Worker& worker) { ddp_step(worker, kJob.elements()); });
}

void check_loss(const Submission& submission) {
  const double found = worst_loss(run_own(submission));
  const double expected = worst_loss(run_ddp());
  if (found <= kMostLoss * expected) return;
  refuse({"after {} steps the loss of the worst worker is {:.4g}, but DDP's is {:.4g}; do all workers end with the "
          "mean, also after the last step?",
          "{} 步之后，最差的 worker 的损失是 {:.4g}，而 DDP 是 {:.4g}；所有 worker "
          "最后都得到平均值吗，包括最后一步之后？"},
         kJob.steps, found, expected);
}

void check_time(const Submission& submission) {
  const Trained own = run_own(submission);
  const double expected = time_of(run_ddp());
  if (time_of(own) <= kMostTime * expected) return;
  refuse({"{} steps take {:.2f} s, DDP's take {:.2f} s; half of that is the target. In the last step worker 0 handed "
          "{} bytes to collectives: does every step need an exchange?",
          "{} 步用了 {:.2f} 秒，DDP 用 {:.2f} 秒；目标是它的一半。最后一步中 worker 0 把 {} "
          "字节交给集合通信：每一步都需要交换吗？"},
         kJob.steps, time_of(own), expected, own.workers[0].handed_elements() * sizeof(float));
}

}  // namespace

Exercise slow_link_exercise() {
  return {11,
          "slow-link",
          {"a way of your own that beats DDP on a slow link", "在慢链路上胜过 DDP 的自己的办法"},
          "start.cpp",
          {{{"the loss of DDP, within 2 %", "与 DDP 的损失相差不超过 2 %"}, 50, check_loss, {}, true},
           {{"at most half of DDP's time", "不超过 DDP 一半的时间"}, 50, check_time, 0}}};
}

}  // namespace psring::cli
