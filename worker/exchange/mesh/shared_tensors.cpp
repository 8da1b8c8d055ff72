#include <algorithm>

#include <psring/common/proc/job.h>
#include <psring/worker/exchange/mesh/shared_tensors.h>

namespace psring::worker {

SharedTensors::SharedTensors(const Plan& plan, const World& world, std::vector<SharedTensor> tensors, bool at_owner)
    : plan_(plan), world_(world), tensors_(std::move(tensors)) {
  if (!at_owner || plan.job.accumulate == 1) return;
  for (const SharedTensor& tensor : tensors_)
    sums_.emplace_back(tensor.range.size() * size_bytes(plan.layout.gradient_type), Category::gradients, world.memory);
}

void SharedTensors::add_up(UnitId unit, const Micro& micro) {
  for (std::size_t i = 0; i < sums_.size(); ++i) {
    if (tensors_[i].unit != unit) continue;
    const Elements gradient = world_.units[unit].gradients.part(tensors_[i].range);
    const Elements sum = sums_[i].elements(plan_.layout.gradient_type);
    if (micro.last) {
      if (micro.index > 0) add(gradient, sum);
      continue;
    }
    micro.index == 0 ? copy(gradient, sum) : add(sum, gradient);
    clear(gradient);
  }
}

bool SharedTensors::in_unit(UnitId unit) const {
  return std::ranges::any_of(tensors_, [&](const SharedTensor& tensor) { return tensor.unit == unit; });
}

void SharedTensors::sum() {
  const Events::Wait wait(world_.events, {.name = "sum of shared tensors"}, waited_);
  std::vector<ring::Work> works;
  for (const SharedTensor& tensor : tensors_)
    works.push_back(world_.mesh->sharing[tensor.group]->all_reduce(
        world_.units[tensor.unit].gradients.part(tensor.range), ring::ReduceOp::Kind::sum));
  for (ring::Work& work : works) work.wait();
}

void SharedTensors::predict(Prediction& prediction) const {
  if (!tensors_.empty()) prediction.same_bits = false;
  for (const Buffer& sum : sums_) prediction.worker_memory[Category::gradients] += sum.size_bytes();
  for (const SharedTensor& tensor : tensors_) {
    const ring::ProcessGroup& group = *world_.mesh->sharing[tensor.group];
    add_call(group.predict(ring::Collective::all_reduce, tensor.range.size(), {plan_.layout.gradient_type}),
             prediction);
  }
}

}  // namespace psring::worker
