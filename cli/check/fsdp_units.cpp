// Exercise 08: better units for FSDP.
#include <algorithm>

#include <psring/cli/check/answers.h>
#include <psring/cli/check/jobs.h>
#include <psring/cli/train/job_memory.h>
#include <psring/common/base/text/error.h>

namespace psring::cli {
namespace {

void judge_units(const Submission& submission, const Answer& answer, std::size_t most_units, std::uint64_t most_bytes) {
  const auto& [name, units] = answer;
  const auto count = static_cast<std::size_t>(std::count(units.begin(), units.end(), ',')) + 1;
  if (count > most_units)
    refuse({"{} = {}: {} units, but at most {} are allowed: each gather of a unit costs a latency",
            "{} = {}：{} 个单元，最多允许 {} 个：每次收集一个单元都要付一次延迟"},
           name, units, count, most_units);
  const options::Given given = {
      {"model", "gelu-mlp:dim=256,layers=6"}, {"global-batch", "8"}, {"optimizer", "adamw"}, {"units", units}};
  JobMemory memory;
  try {
    memory = job_memory(exercise_job(submission.app, "zero3", given).job, 1, submission.app);
  } catch (const Error& error) {
    refuse({"{} = {}: {}", "{} = {}：{}"}, name, units, error.what());
  }
  const std::uint64_t bytes = memory.process_bytes();
  if (bytes <= most_bytes) return;
  submission.scene = play_exercise(submission.app, "zero3", given);
  refuse({"{} = {}: a worker's peak is {} bytes, of which {} hold whole units; the target is {}. A unit stays "
          "whole from its first layer to its last: which layers lie between them, and how large are the "
          "units that are whole at the same time?",
          "{} = {}：worker 的峰值是 {} 字节，其中 {} 字节是完整的单元；目标是 {}。单元从第一层到最后一层都保持完整："
          "中间隔着哪些层？同时完整的单元有多大？"},
         name, units, bytes, memory.worker.at(Category::communication), most_bytes);
}

Question question(const char* name, const Text& title, std::size_t most_units, std::uint64_t most_bytes) {
  return {name, title, 50, [=](const Submission& submission, const Answer& answer) {
            judge_units(submission, answer, most_units, most_bytes);
          }};
}

}  // namespace

Exercise fsdp_units_exercise() {
  return {
      8,
      "fsdp-units",
      {"better units for FSDP", "更好的 FSDP 单元"},
      "start.txt",
      answer_checks({question("three_units",
                              {"three units, a peak of at most 3,750,000 bytes", "三个单元，峰值不超过 3,750,000 字节"},
                              3, 3'750'000),
                     question("four_units",
                              {"four units, a peak of at most 3,450,000 bytes", "四个单元，峰值不超过 3,450,000 字节"},
                              4, 3'450'000)})};
}

}  // namespace psring::cli
