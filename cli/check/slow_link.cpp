// Exercise 11: a way of one's own that beats DDP on a slow link.
#include <algorithm>

#include <psring/cli/check/exercises.h>
#include <psring/cli/check/training.h>

namespace psring::cli {
namespace {

constexpr double kMostTime = 0.5;   ///< of DDP's
constexpr double kMostLoss = 1.02;  ///< times DDP's

TrainingOptions options_of() {
  return {.workers = 4,
          .layers = {2000, 4000, 2000},
          .steps = 48,
          .link = {1e7, std::chrono::milliseconds(5)},
          .elements_per_second = 4e6};
}

/// DDP with one bucket.
void ddp_step(exercise::Worker& worker) {
  worker.forward();
  for (std::size_t layer = worker.layers(); layer-- > 0;) worker.backward(layer);
  const std::span<float> gradients = worker.gradients(0, worker.layers());
  worker.wait(worker.start_all_reduce(gradients));
  const std::span<float> parameters = worker.parameters(0, worker.layers());
  for (std::size_t i = 0; i < gradients.size(); ++i)
    parameters[i] -= worker.learning_rate() * gradients[i] / static_cast<float>(worker.size());
}

double time_of(const Trained& trained) {
  return seconds(*std::max_element(trained.ended.begin(), trained.ended.end()) - Moment{});
}

/// The largest loss of any worker's parameters.
double worst_loss(const TrainingOptions& options, const Trained& trained) {
  double worst = 0;
  for (const auto& parameters : trained.parameters) worst = std::max(worst, loss_of(options, parameters));
  return worst;
}

struct Both {
  Trained own;
  Trained ddp;
};

Both run(const Submission& submission) {
  const TrainingOptions options = options_of();
  Both both{train(options, submission.language, submission.solution->function<void(exercise::Worker&)>("train_step")),
            train(options, submission.language, ddp_step)};
  if (const std::string failure = explain_failure(options, submission.language, both.own); !failure.empty())
    throw Mistake(failure);
  return both;
}

void check_loss(const Submission& submission) {
  const Both both = run(submission);
  const double found = worst_loss(options_of(), both.own);
  const double expected = worst_loss(options_of(), both.ddp);
  if (found <= kMostLoss * expected) return;
  submission.refuse(
      {"after {} steps the loss of the worst worker is {:.4g}, but DDP's is {:.4g}; do all workers end with the "
       "mean, also after the last step?",
       "{} 步之后，最差的 worker 的损失是 {:.4g}，而 DDP 是 {:.4g}；所有 worker "
       "最后都得到平均值吗，包括最后一步之后？"},
      options_of().steps, found, expected);
}

void check_time(const Submission& submission) {
  const Both both = run(submission);
  const double found = time_of(both.own);
  const double expected = time_of(both.ddp);
  if (found <= kMostTime * expected) return;
  submission.refuse(
      {"{} steps take {:.2f} s, DDP's take {:.2f} s; half of that is the target. In the last step worker 0 handed "
       "{} bytes to collectives: does every step need an exchange?",
       "{} 步用了 {:.2f} 秒，DDP 用 {:.2f} 秒；目标是它的一半。最后一步中 worker 0 把 {} "
       "字节交给集合通信：每一步都需要交换吗？"},
      options_of().steps, found, expected, [&] {
        std::size_t elements = 0;
        for (const Handed& handed : both.own.handed[0]) elements += handed.elements;
        return elements * sizeof(float);
      }());
}

}  // namespace

Exercise slow_link_exercise() {
  return {11,
          "slow-link",
          {"a way of your own that beats DDP on a slow link", "在慢链路上胜过 DDP 的自己的办法"},
          "start.cpp",
          {{{"the loss of DDP, within 2 %", "与 DDP 的损失相差不超过 2 %"}, 50, check_loss, {}, true},
           {{"at most half of DDP's time", "不超过 DDP 一半的时间"}, 50, check_time, {0}}}};
}

}  // namespace psring::cli
