#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace psring {

/// A worker's number among all workers of a job, from 0.
struct JobRank {
  std::size_t value = 0;
  friend auto operator<=>(const JobRank&, const JobRank&) = default;
};

/// A worker's number in its data-parallel group, from 0. The members of the group see different samples and average
/// their gradients. In every formula, n is the size of this group.
struct DataRank {
  std::size_t value = 0;
  friend auto operator<=>(const DataRank&, const DataRank&) = default;
};

/// The mesh of a job's workers: data x tensor x pipeline. Tensor and pipeline parallelism decide which layers, and
/// which part of a layer, a worker computes. Data parallelism decides which samples a worker sees, and who owns which
/// range. Ranks count the tensor axis fastest, then pipeline, then data: the workers of a tensor group, which
/// communicate most, are neighbours, and so are the workers that hold one copy of the model.
///
///   rank = tensor rank + tensor * (stage + pipeline * data rank)
struct Mesh {
  std::size_t data = 1;
  std::size_t tensor = 1;
  std::size_t pipeline = 1;

  std::size_t workers() const { return data * tensor * pipeline; }
  /// Workers that hold one copy of the model together.
  std::size_t model_workers() const { return tensor * pipeline; }
  bool divides_model() const { return model_workers() > 1; }

  DataRank data_rank(JobRank rank) const { return {rank.value / model_workers()}; }
  /// The worker's stage of the pipeline, from 0.
  std::size_t stage(JobRank rank) const { return rank.value / tensor % pipeline; }
  std::size_t tensor_rank(JobRank rank) const { return rank.value % tensor; }
  /// The worker that reports the losses of its copy of the model: the last stage, where the loss is computed.
  bool reports_loss(JobRank rank) const { return tensor_rank(rank) == 0 && stage(rank) + 1 == pipeline; }

  /// The axes along which workers form groups. The members of a group have equal places on all other axes.
  enum class Axis : std::uint8_t {
    data,
    tensor,
    pipeline,
    model,  ///< tensor and pipeline together: the workers of one copy of the model
  };
  /// Returns the number of each worker's group on an axis, by rank, for ProcessGroup::split. The rank within a group is
  /// the place on the axis; on Axis::model it is tensor rank + tensor * stage.
  std::vector<std::size_t> group_numbers(Axis axis) const {
    std::vector<std::size_t> numbers;
    for (std::size_t rank = 0; rank < workers(); ++rank) numbers.push_back(group_number({rank}, axis));
    return numbers;
  }

 private:
  std::size_t group_number(JobRank rank, Axis axis) const {
    switch (axis) {
      case Axis::data:
        return rank.value % model_workers();
      case Axis::tensor:
        return rank.value / tensor;
      case Axis::pipeline:
        return tensor_rank(rank) + tensor * data_rank(rank).value;
      case Axis::model:
        break;
    }
    return data_rank(rank).value;
  }
};

}  // namespace psring
