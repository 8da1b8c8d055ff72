// Exercise 07: ZeRO stage 1.
#include <psring/cli/check/training.h>

namespace psring::cli {
namespace {

constexpr std::size_t kAll = 120 + 240 + 60;

TrainingOptions options_of(std::size_t workers, std::size_t steps) {
  return {.workers = workers, .layers = {120, 240, 60}, .steps = steps, .momentum = 0.5F};
}

void check_steps(const Submission& submission) {
  for (const std::size_t workers : {4, 2, 3, 5, 1}) judge_training(submission, options_of(workers, 4));
}

void check_state(const Submission& submission) {
  judge_training(submission, options_of(4, 2), [&](const Trained& trained) {
    for (std::size_t worker = 0; worker < 4; ++worker)
      if (const std::size_t kept = trained.workers[worker].state_elements; kept != kAll / 4)
        refuse({"worker {} keeps {} bytes of optimizer state; its part of the momentum is {}, a quarter of {}",
                "worker {} 保存了 {} 字节的优化器状态；它那部分动量是 {} 字节，即 {} 的四分之一"},
               worker, kept * sizeof(float), kAll / 4 * sizeof(float), kAll * sizeof(float));
  });
}

void check_bytes(const Submission& submission) {
  judge_training(submission, options_of(4, 2), [&](const Trained& trained) {
    for (std::size_t worker = 0; worker < 4; ++worker) {
      std::size_t reduced = 0;
      std::size_t gathered = 0;
      for (const Handed& handed : trained.workers[worker].handed) {
        if (handed.collective == ring::Collective::all_reduce)
          refuse({"worker {} calls all-reduce, which gives every worker the whole mean; a worker needs only its part: "
                  "reduce-scatter",
                  "worker {} 调用了 all-reduce，每个 worker 都得到整个平均值；worker 只需要自己的部分：reduce-scatter"},
                 worker);
        (handed.collective == ring::Collective::reduce_scatter ? reduced : gathered) += handed.elements;
      }
      if (reduced != kAll || gathered != kAll)
        refuse({"worker {} reduces {} and gathers {} bytes in a step; it should be {} each",
                "worker {} 在一步中归约 {} 字节、收集 {} 字节；各应为 {} 字节"},
               worker, reduced * sizeof(float), gathered * sizeof(float), kAll * sizeof(float));
    }
  });
}

}  // namespace

Exercise zero1_exercise() {
  return {7,
          "zero1",
          {"ZeRO stage 1: each worker updates its part", "ZeRO 第 1 级：每个 worker 更新自己的部分"},
          "start.cpp",
          {{{"four steps of 1 to 5 workers", "1 到 5 个 worker 的四步"}, 40, check_steps, {}, true},
           {{"each worker keeps 1/n of the momentum", "每个 worker 保存 1/n 的动量"}, 30, check_state, 0},
           {{"gradients are scattered, parameters gathered", "梯度用 reduce-scatter，参数用 all-gather"},
            30,
            check_bytes,
            0}}};
}

}  // namespace psring::cli
