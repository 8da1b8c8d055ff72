// Exercise 06: a function that equals the memory ledger.
#include <psring/cli/check/exercise.h>
#include <psring/cli/check/exercises.h>
#include <psring/cli/check/jobs.h>
#include <psring/cli/job_memory.h>
#include <psring/cli/memory_command.h>

namespace psring::cli {
namespace {

using MemoryOf = void(const exercise::MemoryQuestion&, exercise::MemoryBytes&);

constexpr std::uint64_t kElements = 4 * 128 * 128;
constexpr const char* kModel = "gelu-mlp:dim=128,layers=4";
constexpr const char* kStrategies[] = {"ddp", "zero1", "zero2", "zero3"};

std::uint64_t booked(const JobMemory& memory, Category category) {
  const auto found = memory.worker.find(category);
  return found == memory.worker.end() ? 0 : found->second;
}

/// Returns the bytes that psring books: the prediction against which every run checks its ledger.
exercise::MemoryBytes booked_of(const App& app, const exercise::MemoryQuestion& job) {
  const Entry entry = exercise_job(app, kStrategies[job.stage],
                                   {{"workers", std::to_string(job.workers)},
                                    {"global-batch", std::to_string(job.workers)},
                                    {"model", kModel},
                                    {"optimizer", job.adam ? "adamw" : "sgd"},
                                    {"precision", job.mixed ? "bf16" : "f32"}});
  const JobMemory memory = job_memory(entry.job, 1, app);
  return {booked(memory, Category::parameters), booked(memory, Category::gradients),
          booked(memory, Category::optimizer)};
}

/// The likely mistake behind a wrong number of bytes.
Text cause_of(const exercise::MemoryQuestion& job, const char* category, std::uint64_t found, std::uint64_t expected) {
  const std::string name = category;
  if (found * 2 == expected && job.stage == 3)
    return {"stage 3 cuts parameters into n parts, not 2 n", "第 3 级把参数切成 n 份，不是 2 n 份"};
  if (expected == 0) return {"plain SGD has no state", "普通 SGD 没有状态"};
  if (found == expected * job.workers && job.workers > 1)
    return {"this stage cuts it into n parts", "这一级把它切成 n 份"};
  if (found * job.workers == expected && job.workers > 1) return {"this stage does not cut it yet", "这一级还不切分它"};
  if (name == "optimizer" && job.mixed)
    return {"in mixed precision the owner also keeps master weights in f32; moments are f32 too",
            "混合精度时，所有者还保存 f32 的主权重；动量也是 f32"};
  if (job.mixed && found == 2 * expected) return {"bf16 takes 2 bytes", "bf16 占 2 字节"};
  return {"count bytes for each parameter: its type, and what is kept besides",
          "按每个参数数字节：它的类型，以及另外保存的东西"};
}

void check_category(const Submission& submission, const exercise::MemoryQuestion& job, const char* category,
                    std::uint64_t found, std::uint64_t expected) {
  if (found == expected) return;
  submission.refuse(
      {"stage {}, n = {}, {}, {}: {} bytes of {}, not {}; {}", "第 {} 级，n = {}，{}，{}：{} 字节的 {}，应为 {}；{}"},
      job.stage, job.workers, job.adam ? "AdamW" : "SGD", job.mixed ? "bf16" : "f32", found,
      memory_name(category, submission.language), expected,
      cause_of(job, category, found, expected).in(submission.language));
}

/// Six jobs of one stage: two optimizers, in f32 with 4 workers, in bf16 with 4 and 8.
void check_stage(const Submission& submission, unsigned stage) {
  auto* const memory_of = submission.solution->function<MemoryOf>("memory_of");
  for (const bool adam : {false, true})
    for (const auto& [mixed, workers] : {std::pair(false, 4), std::pair(true, 4), std::pair(true, 8)}) {
      const exercise::MemoryQuestion job{kElements, static_cast<std::uint64_t>(workers), stage, adam, mixed};
      exercise::MemoryBytes found;
      memory_of(job, found);
      const exercise::MemoryBytes expected = booked_of(submission.app, job);
      check_category(submission, job, "parameters", found.parameters, expected.parameters);
      check_category(submission, job, "gradients", found.gradients, expected.gradients);
      check_category(submission, job, "optimizer", found.optimizer, expected.optimizer);
    }
}

/// A stage cuts what the stage before cuts, and one thing more.
Check check_of(unsigned stage, const Text& name) {
  return {name, 25, [stage](const Submission& submission) { check_stage(submission, stage); },
          stage == 0 ? std::vector<std::size_t>{} : std::vector<std::size_t>{stage - 1}};
}

}  // namespace

Exercise memory_exercise() {
  return {
      6,
      "memory",
      {"a function that equals the memory ledger", "与内存账本相等的函数"},
      "start.cpp",
      {check_of(0, {"stage 0, six jobs", "第 0 级，六个作业"}), check_of(1, {"stage 1, six jobs", "第 1 级，六个作业"}),
       check_of(2, {"stage 2, six jobs", "第 2 级，六个作业"}),
       check_of(3, {"stage 3, six jobs", "第 3 级，六个作业"})}};
}

}  // namespace psring::cli
