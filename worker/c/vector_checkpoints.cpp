// Checkpoints of a vector: their content, and the rules by which a job may continue from one.
#include <map>
#include <string>
#include <vector>

#include <psring/common/base/system/mutex.h>
#include <psring/common/base/text/error.h>
#include <psring/optim/checkpoint/checkpoint.h>
#include <psring/worker/c/vector.h>

namespace psring::c {
namespace {

constexpr const char* kRule = "optimizer";

}  // namespace

std::vector<optim::SavedTensor> Vector::tensors() const {
  std::vector<std::string> arrays{optim::kValues};
  for (std::size_t slot = 0; slot < rule_->slots(); ++slot) arrays.push_back(optim::slot_array(slot));
  std::vector<optim::SavedTensor> tensors;
  for (const UnitLayout& unit : layout_.units)
    for (const TensorLayout& tensor : unit.tensors) tensors.push_back({tensor.spec.name, tensor.spec.shape, arrays});
  return tensors;
}

void Vector::begin_checkpoints() {
  const JobOptions& job = member_.job();
  if (member_.rank() != 0 || !servers_update_) return;
  const std::string rule = worker::describe_rule(job, *rule_);
  std::uint64_t first_step = 0;
  if (!job.resume.empty()) {
    const optim::Checkpoint saved(job.resume);
    const auto& facts = saved.manifest().facts;
    if (const auto fact = facts.find(kRule); fact == facts.end() || fact->second != rule)
      fail(ErrorKind::data, "--resume {}: saved with {} {}, this run's is {}", job.resume, kRule,
           fact == facts.end() ? "unknown" : fact->second, rule);
    worker::require_tensors(saved, tensors());
    if (const std::size_t more = saved.manifest().tensors.size(); more > tensors().size())
      fail(ErrorKind::data, "--resume {}: has {} tensors, this run's model {}", job.resume, more, tensors().size());
    first_step = saved.step();
  }
  const MutexLock lock(checkpoints_mutex_);
  if (!job.checkpoint_folder().empty())
    checkpoints_.emplace(job, first_step, std::map<std::string, std::string>{{kRule, rule}});
}

}  // namespace psring::c
