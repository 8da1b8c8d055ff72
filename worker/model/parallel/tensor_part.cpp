#include <utility>

#include <psring/common/base/text/error.h>
#include <psring/ring/process_group.h>
#include <psring/worker/model/parallel/tensor_part.h>

namespace psring::worker {

TensorPart::TensorPart(std::size_t rank, std::size_t size)
    : rank_(rank), size_(size), connection_(size > 1 ? std::make_shared<Connection>() : nullptr) {
  check(rank < size, "tensor part {} of {}", rank, size);
}

void TensorPart::connect(ring::ProcessGroup& group, const Clock& clock, Buffer memory) const {
  check(group.size() == size_ && group.rank() == rank_, "tensor part {} of {} in a group as {} of {}", rank_, size_,
        group.rank(), group.size());
  if (!whole()) *connection_ = {&group, &clock, std::move(memory)};
}

std::span<std::byte> TensorPart::memory(std::size_t bytes) const {
  check(!whole() && connection_->memory.size_bytes() >= bytes, "tensor part {} of {}: {} bytes are more than it has",
        rank_, size_, bytes);
  return connection_->memory.bytes().first(bytes);
}

void TensorPart::reduce(ring::Vector values, const ring::ReduceOp& op) const {
  if (whole()) return;
  ring::ProcessGroup& group = connected();
  const Moment start = connection_->clock->now();
  wait(group.all_reduce(values, op), start);
}

ring::ProcessGroup& TensorPart::connected() const {
  check(connection_->group != nullptr, "tensor part {} of {} computes without a group", rank_, size_);
  return *connection_->group;
}

void TensorPart::wait(ring::Work work, Moment start) const {
  work.wait();
  connection_->waited += connection_->clock->now() - start;
}

void TensorPart::sum(std::span<float> values) const { reduce(values, ring::ReduceOp::Kind::sum); }
void TensorPart::sum(std::span<double> values) const { reduce(values, ring::ReduceOp::Kind::sum); }
void TensorPart::largest(std::span<float> values) const { reduce(values, ring::ReduceOp::Kind::max); }

void TensorPart::gather(std::span<float> values, std::span<const std::size_t> sizes) const {
  if (whole()) return;
  ring::ProcessGroup& group = connected();
  const Moment start = connection_->clock->now();
  wait(group.all_gather(values, ring::parts_of_sizes(sizes)), start);
}

void cut(TensorSpec& tensor, std::size_t axis, std::size_t extent, std::vector<Range> ranges) {
  TensorSlice slice{tensor.shape, axis, std::move(ranges)};
  slice.whole_shape.at(axis) = extent;
  tensor.slice = std::move(slice);
}

}  // namespace psring::worker
