#include <algorithm>
#include <utility>

#include <psring/ring/hier/progress.h>
#include <psring/ring/hier/task.h>

namespace psring::ring {

bool HierTask::advance() {
  if (!finished_) progress_.advance();
  return finished_;
}

void HierTask::wait() {
  if (!finished_) progress_.wait_for(*this);
}

HierCollective::HierCollective(HierProgress& progress, const Announced& said, const Request& request,
                               Hierarchy::Stages stages)
    : HierTask(progress, said), data_(request.data), op_(request.op), stages_(std::move(stages)) {}

Work HierCollective::begin(InnerGroup& group, const Hierarchy::Stage& stage, const ReduceOp& op) const {
  const Vector data = data_.part(stage.range);
  const bool barrier = stage.collective == Collective::barrier;
  Call call{.collective = stage.collective, .root = static_cast<std::uint32_t>(stage.root)};
  if (!barrier) {
    call.op = op.kind();
    call.type = data.type;
    call.count = data.count;
  }
  return group.start(
      {.call = call, .data = barrier ? Vector() : data, .op = op, .parts = &stage.parts, .outer = &said()});
}

/// A mean is divided between the hosts, where the sum ends.
void HierCollective::go_down(InnerGroup& group) {
  const bool ends_here = stages_.between.empty() || op_.kind() != ReduceOp::Kind::mean;
  down_ = begin(group, stages_.down, ends_here ? op_ : ReduceOp(ReduceOp::Kind::sum));
  at_ = At::down;
}

void HierCollective::go_between(const std::vector<std::unique_ptr<InnerGroup>>& columns) {
  for (std::size_t i = 0; i < columns.size(); ++i) between_.push_back(begin(*columns[i], stages_.between[i], op_));
  at_ = At::between;
}

bool HierCollective::is_through() {
  while (through_ < between_.size() && between_[through_].done()) ++through_;
  return through_ == between_.size();
}

void HierCollective::go_up(InnerGroup& group) {
  if (stages_.up) up_ = begin(group, *stages_.up, op_);
  at_ = At::up;
}

std::vector<std::size_t> HierCollective::awaited() const {
  const Work& work = at_ == At::down      ? down_
                     : at_ == At::between ? between_[std::min(through_, between_.size() - 1)]
                                          : up_;
  return work.awaited();
}

}  // namespace psring::ring
