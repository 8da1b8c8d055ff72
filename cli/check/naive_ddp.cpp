// Exercise 02: plain data-parallel training.
#include <psring/cli/check/training.h>

namespace psring::cli {
namespace {

const std::vector<std::size_t> kLayers = {60, 240, 120, 30};

void check_one_step(const Submission& submission) { judge_training(submission, {.layers = kLayers}); }

void check_more(const Submission& submission) {
  for (const std::size_t workers : {2, 3, 5, 6, 1})
    judge_training(submission, {.workers = workers, .layers = kLayers, .steps = 4});
}

/// Each gradient passes one all-reduce, and nothing else moves.
void check_bytes(const Submission& submission) {
  constexpr std::size_t kAll = 60 + 240 + 120 + 30;
  judge_training(submission, {.layers = kLayers}, [&](const Trained& trained) {
    for (std::size_t worker = 0; worker < trained.workers.size(); ++worker)
      if (const std::size_t elements = trained.workers[worker].handed_elements(); elements != kAll)
        refuse({"worker {} handed {} bytes to collectives in a step; the gradients have {}",
                "worker {} 在一步中把 {} 字节交给集合通信；梯度共有 {} 字节"},
               worker, elements * sizeof(float), kAll * sizeof(float));
  });
}

void check_seeds(const Submission& submission) {
  for (std::uint64_t seed = 1; seed <= 100; ++seed)
    judge_training(submission, {.layers = kLayers, .steps = 2, .seed = seed});
}

}  // namespace

Exercise naive_ddp_exercise() {
  return {2,
          "naive-ddp",
          {"data-parallel training, one all-reduce after another", "数据并行训练：all-reduce 一个接一个"},
          "start.cpp",
          {{{"one step of four workers", "四个 worker 的一步"}, 40, check_one_step},
           {{"four steps of 1, 2, 3, 5 and 6 workers", "1、2、3、5、6 个 worker 的四步"}, 20, check_more, 0},
           {{"every gradient moves once", "每个梯度只移动一次"}, 20, check_bytes, 0},
           {{"100 seeds of the simulated network", "模拟网络的 100 个种子"}, 20, check_seeds, 1}}};
}

}  // namespace psring::cli
