// Exercise 06: a function that equals the memory ledger.
#include <string_view>

#include <psring/cli/check/exercises.h>
#include <psring/cli/check/jobs.h>
#include <psring/cli/memory/memory_command.h>

namespace psring::cli {
namespace {

using MemoryOf = void(const exercise::MemoryQuestion&, exercise::MemoryBytes&);

constexpr const char* kStrategies[] = {"ddp", "zero1", "zero2", "zero3"};

/// The likely mistake behind a wrong number of bytes.
Text cause_of(const exercise::MemoryQuestion& job, std::string_view category, std::uint64_t found,
              std::uint64_t expected) {
  if (found * 2 == expected && job.stage == 3)
    return {"stage 3 cuts parameters into n parts, not 2 n", "第 3 级把参数切成 n 份，不是 2 n 份"};
  if (expected == 0) return {"plain SGD has no state", "普通 SGD 没有状态"};
  if (found == expected * job.workers && job.workers > 1)
    return {"this stage cuts it into n parts", "这一级把它切成 n 份"};
  if (found * job.workers == expected && job.workers > 1) return {"this stage does not cut it yet", "这一级还不切分它"};
  if (category == "optimizer" && job.mixed)
    return {"in mixed precision the owner also keeps master weights in f32; moments are f32 too",
            "混合精度时，所有者还保存 f32 的主权重；动量也是 f32"};
  if (job.mixed && found == 2 * expected) return {"bf16 takes 2 bytes", "bf16 占 2 字节"};
  return {"count bytes for each parameter: its type, and what is kept besides",
          "按每个参数数字节：它的类型，以及另外保存的东西"};
}

/// Refuses a category with other bytes than psring books.
void check_category(const exercise::MemoryQuestion& job, const char* category, std::uint64_t found,
                    std::uint64_t expected) {
  if (found == expected) return;
  refuse(
      {"stage {}, n = {}, {}, {}: {} bytes of {}, not {}; {}", "第 {} 级，n = {}，{}，{}：{} 字节的 {}，应为 {}；{}"},
      job.stage, job.workers, job.adam ? "AdamW" : "SGD", job.mixed ? "bf16" : "f32", found,
      Text{memory_name(category, Language::en).c_str(), memory_name(category, Language::zh).c_str()}, expected,
      cause_of(job, category, found, expected));
}

/// Six jobs of one stage: two optimizers, in f32 with 4 workers, in bf16 with 4 and 8. A stage cuts what the stage
/// before cuts, and one thing more.
Check stage_check(unsigned stage, const Text& name) {
  const auto run = [stage](const Submission& submission) {
    auto* const memory_of = submission.solution->function<MemoryOf>("memory_of");
    for (const bool adam : {false, true})
      for (const auto& [mixed, workers] : {std::pair(false, 4U), std::pair(true, 4U), std::pair(true, 8U)}) {
        const exercise::MemoryQuestion job{kBookedElements, workers, stage, adam, mixed};
        exercise::MemoryBytes found;
        memory_of(job, found);
        const exercise::MemoryBytes expected = booked_bytes(submission.app, kStrategies[stage],
                                                            {{"workers", std::to_string(workers)},
                                                             {"global-batch", std::to_string(workers)},
                                                             {"optimizer", adam ? "adamw" : "sgd"},
                                                             {"precision", mixed ? "bf16" : "f32"}});
        check_category(job, "parameters", found.parameters, expected.parameters);
        check_category(job, "gradients", found.gradients, expected.gradients);
        check_category(job, "optimizer", found.optimizer, expected.optimizer);
      }
  };
  return {name, 25, run, stage == 0 ? std::nullopt : std::optional<std::size_t>(stage - 1)};
}

}  // namespace

Exercise memory_exercise() {
  return {6,
          "memory",
          {"a function that equals the memory ledger", "与内存账本相等的函数"},
          "start.cpp",
          {stage_check(0, {"stage 0, six jobs", "第 0 级，六个作业"}),
           stage_check(1, {"stage 1, six jobs", "第 1 级，六个作业"}),
           stage_check(2, {"stage 2, six jobs", "第 2 级，六个作业"}),
           stage_check(3, {"stage 3, six jobs", "第 3 级，六个作业"})}};
}

}  // namespace psring::cli
