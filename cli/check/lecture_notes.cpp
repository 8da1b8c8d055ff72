// Exercise 12: find the mistakes in lecture notes.
#include <cmath>

#include <psring/cli/check/answers.h>
#include <psring/cli/check/jobs.h>

namespace psring::cli {
namespace {

/// A function that returns the right figure, from psring's own bookings or counts.
using Figure = std::function<double(const App&)>;

/// Booked bytes for each parameter: parameters, gradients and optimizer state.
double booked(const App& app, const char* strategy, const char* optimizer, const char* precision) {
  const exercise::MemoryBytes bytes =
      booked_bytes(app, strategy, {{"global-batch", "4"}, {"optimizer", optimizer}, {"precision", precision}});
  return static_cast<double>(bytes.parameters + bytes.gradients + bytes.optimizer) / kBookedElements;
}

Figure memory_of(const char* strategy, const char* optimizer, const char* precision) {
  return [=](const App& app) { return booked(app, strategy, optimizer, precision); };
}

/// M is the gradient of n = 4 workers in bytes: the bytes that a worker sends in a step, as a multiple of M.
Figure sent_by(const char* strategy, const char* algorithm) {
  return [=](const App& app) {
    const Json scene =
        play_exercise(app, strategy, {{"global-batch", "4"}, {"model", kBookedModel}, {"algorithm", algorithm}});
    return scene.at("processes")[0].at("sent")[0].get<double>() / (kBookedElements * sizeof(float));
  };
}

/// `kept`: the notes are right.
Question claim(const char* name, const Text& hint, const Figure& right, bool kept = false) {
  return {name,
          {name, name},
          10,
          [=](const Submission& submission, const Answer& answer) {
            const double found = answer.number();
            if (!(std::abs(found - right(submission.app)) < 0.005))
              refuse({"{} = {} is not what psring books or counts: {}", "{} = {} 与 psring 记账或统计的不同：{}"}, name,
                     found, hint);
          },
          0,
          kept};
}

}  // namespace

Exercise lecture_notes_exercise() {
  return {12,
          "lecture-notes",
          {"find the mistakes in lecture notes", "找出讲义里的错误"},
          "start.txt",
          answer_checks(
              {claim("ddp_adamw_mixed",
                     {"parameters and gradients in 2 bytes, then master weight and two moments",
                      "参数和梯度各 2 字节，再加主权重和两个动量"},
                     memory_of("ddp", "adamw", "bf16"), true),
               claim("zero1_adamw_mixed", {"stage 1 cuts the optimizer state only", "第 1 级只切分优化器状态"},
                     memory_of("zero1", "adamw", "bf16")),
               claim("zero2_adamw_mixed",
                     {"stage 2 also cuts gradients; parameters stay whole", "第 2 级还切分梯度；参数仍然完整"},
                     memory_of("zero2", "adamw", "bf16"), true),
               claim("zero3_adamw_mixed",
                     {"stage 3 cuts all of it into n parts: add up first, then divide",
                      "第 3 级把全部切成 n 份：先加，再除"},
                     memory_of("zero3", "adamw", "bf16")),
               claim("ddp_sgd_f32", {"plain SGD has no state", "普通 SGD 没有状态"}, memory_of("ddp", "sgd", "f32")),
               claim("zero1_momentum_f32",
                     {"momentum has one value for each parameter, and only the owner keeps it",
                      "动量是每个参数一个值，只有所有者保存"},
                     memory_of("zero1", "momentum", "f32"), true),
               claim("ring_all_reduce_sends",
                     {"a ring all-reduce is a reduce-scatter and an all-gather",
                      "环形 all-reduce 是一次 reduce-scatter 加一次 all-gather"},
                     sent_by("ddp", "ring")),
               claim("zero3_sends",
                     {"a unit is gathered for forward and for backward, and its gradient is reduced once",
                      "一个单元为前向和反向各收集一次，梯度归约一次"},
                     sent_by("zero3", "auto")),
               claim("parameters_in_80_gb",
                     {"memory divided by bytes for each parameter, not the other way round",
                      "内存除以每个参数的字节，不要颠倒"},
                     [](const App& app) { return 80 / booked(app, "ddp", "adamw", "bf16"); }),
               claim("one_server_receives",
                     {"one server receives the gradient of every worker", "一个 server 收到每个 worker 的梯度"},
                     [](const App&) { return 4.0; })})};
}

}  // namespace psring::cli
