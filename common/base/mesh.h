#pragma once

#include <compare>
#include <cstddef>
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
/// range. Ranks count the tensor axis fastest, then data, then pipeline, so that the workers of a tensor group, which
/// communicate most, are neighbours.
struct Mesh {
  std::size_t data = 1;
  std::size_t tensor = 1;
  std::size_t pipeline = 1;

  std::size_t workers() const { return data * tensor * pipeline; }
  DataRank data_rank(JobRank rank) const { return {rank.value / tensor % data}; }
  /// Returns the ranks of the workers that compute the same layers as `rank`, ascending. The member at position i has
  /// DataRank i.
  std::vector<JobRank> data_group(JobRank rank) const {
    const std::size_t first = rank.value - data_rank(rank).value * tensor;
    std::vector<JobRank> group;
    for (std::size_t i = 0; i < data; ++i) group.push_back({first + i * tensor});
    return group;
  }
};

}  // namespace psring
