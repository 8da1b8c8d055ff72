// Exercise 12: find the mistakes in lecture notes.
#include <cmath>

#include <psring/cli/check/answers.h>
#include <psring/cli/check/exercises.h>
#include <psring/cli/check/jobs.h>
#include <psring/cli/job_memory.h>

namespace psring::cli {
namespace {

constexpr double kElements = 4 * 128 * 128;

/// A figure of the notes, and how psring knows the right one.
struct Claim {
  const char* name;
  Text hint;
  std::function<double(const App&)> right;
  bool kept = false;  ///< the notes are right
};

/// Booked bytes for each parameter: parameters, gradients and optimizer state.
double booked(const App& app, const std::string& strategy, const std::string& optimizer, const std::string& precision) {
  const Entry entry = exercise_job(app, strategy,
                                   {{"global-batch", "4"},
                                    {"model", "gelu-mlp:dim=128,layers=4"},
                                    {"optimizer", optimizer},
                                    {"precision", precision}});
  const JobMemory memory = job_memory(entry.job, 1, app);
  double bytes = 0;
  for (const Category category : {Category::parameters, Category::gradients, Category::optimizer})
    if (const auto found = memory.worker.find(category); found != memory.worker.end())
      bytes += static_cast<double>(found->second);
  return bytes / kElements;
}

std::function<double(const App&)> memory_of(const char* strategy, const char* optimizer, const char* precision) {
  return [=](const App& app) { return booked(app, strategy, optimizer, precision); };
}

/// M is the gradient of n = 4 workers in bytes: the bytes that a worker sends in a step, as a multiple of M.
std::function<double(const App&)> sent_by(const char* strategy, const char* algorithm) {
  return [=](const App& app) {
    const Json scene = play_exercise(
        app, strategy, {{"global-batch", "4"}, {"model", "gelu-mlp:dim=128,layers=4"}, {"algorithm", algorithm}});
    return scene.at("processes")[0].at("sent")[0].get<double>() / (kElements * sizeof(float));
  };
}

std::vector<Claim> claims() {
  return {
      {"ddp_adamw_mixed",
       {"parameters and gradients in 2 bytes, then master weight and two moments",
        "参数和梯度各 2 字节，再加主权重和两个动量"},
       memory_of("ddp", "adamw", "bf16"),
       true},
      {"zero1_adamw_mixed",
       {"stage 1 cuts the optimizer state only", "第 1 级只切分优化器状态"},
       memory_of("zero1", "adamw", "bf16")},
      {"zero2_adamw_mixed",
       {"stage 2 also cuts gradients; parameters stay whole", "第 2 级还切分梯度；参数仍然完整"},
       memory_of("zero2", "adamw", "bf16"),
       true},
      {"zero3_adamw_mixed",
       {"stage 3 cuts all of it into n parts: add up first, then divide", "第 3 级把全部切成 n 份：先加，再除"},
       memory_of("zero3", "adamw", "bf16")},
      {"ddp_sgd_f32", {"plain SGD has no state", "普通 SGD 没有状态"}, memory_of("ddp", "sgd", "f32")},
      {"zero1_momentum_f32",
       {"momentum has one value for each parameter, and only the owner keeps it",
        "动量是每个参数一个值，只有所有者保存"},
       memory_of("zero1", "momentum", "f32"),
       true},
      {"ring_all_reduce_sends",
       {"a ring all-reduce is a reduce-scatter and an all-gather",
        "环形 all-reduce 是一次 reduce-scatter 加一次 all-gather"},
       sent_by("ddp", "ring")},
      {"zero3_sends",
       {"a unit is gathered for forward and for backward, and its gradient is reduced once",
        "一个单元为前向和反向各收集一次，梯度归约一次"},
       sent_by("zero3", "auto")},
      {"parameters_in_80_gb",
       {"memory divided by bytes for each parameter, not the other way round", "内存除以每个参数的字节，不要颠倒"},
       [](const App& app) { return 80 / booked(app, "ddp", "adamw", "bf16"); }},
      {"one_server_receives",
       {"one server receives the gradient of every worker", "一个 server 收到每个 worker 的梯度"},
       [](const App&) { return 4.0; }},
  };
}

std::vector<std::string> names() {
  std::vector<std::string> all;
  for (const Claim& claim : claims()) all.emplace_back(claim.name);
  return all;
}

Check check_of(const Claim& claim) {
  return {{claim.name, claim.name},
          10,
          [claim](const Submission& submission) {
            const double found = Answers::read(submission, names()).number(submission, claim.name);
            if (std::abs(found - claim.right(submission.app)) < 0.005) return;
            submission.refuse(
                {"{} = {} is not what psring books or counts: {}", "{} = {} 与 psring 记账或统计的不同：{}"},
                claim.name, found, claim.hint.in(submission.language));
          },
          {0},
          claim.kept};
}

}  // namespace

Exercise lecture_notes_exercise() {
  Exercise exercise{12, "lecture-notes", {"find the mistakes in lecture notes", "找出讲义里的错误"}, "start.txt", {}};
  exercise.checks.push_back(Answers::form_check(names()));
  for (const Claim& claim : claims()) exercise.checks.push_back(check_of(claim));
  return exercise;
}

}  // namespace psring::cli
