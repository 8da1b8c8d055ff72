#include <algorithm>

#include <psring/worker/exchange/mesh/mesh_groups.h>

namespace psring::worker {

MeshGroups make_mesh_groups(ring::ProcessGroup& job, const Mesh& mesh, std::span<const SharingStages> sharing) {
  check(job.size() == mesh.workers(), "a mesh of {} workers, of {}", mesh.workers(), job.size());
  MeshGroups groups{.mesh = mesh, .rank = {job.rank()}, .job = &job};
  const auto along = [&](Mesh::Axis axis) { return job.split(mesh.group_numbers(axis)); };
  groups.data = along(Mesh::Axis::data);
  groups.tensor = along(Mesh::Axis::tensor);
  groups.pipeline = along(Mesh::Axis::pipeline);
  groups.model = along(Mesh::Axis::model);

  // Stages in pairs: (0, 1), (2, 3) ... and (1, 2), (3, 4) ...
  const auto in_pairs = [&](std::size_t shift) {
    std::vector<std::size_t> numbers = mesh.group_numbers(Mesh::Axis::pipeline);
    for (std::size_t rank = 0; rank < numbers.size(); ++rank)
      numbers[rank] = numbers[rank] * (mesh.pipeline + 1) + (mesh.stage({rank}) + shift) / 2;
    return job.split(numbers);
  };
  groups.with_after = in_pairs(0);
  groups.with_before = in_pairs(1);
  if (groups.stage() % 2 == 1) std::swap(groups.with_after, groups.with_before);

  for (const SharingStages& stages : sharing) {
    std::vector<std::size_t> numbers = mesh.group_numbers(Mesh::Axis::pipeline);
    for (std::size_t rank = 0; rank < numbers.size(); ++rank) {
      const std::size_t stage = mesh.stage({rank});
      const bool shares = std::ranges::count(stages, stage) > 0;
      numbers[rank] = numbers[rank] * (mesh.pipeline + 1) + (shares ? mesh.pipeline : stage);
    }
    groups.sharing.push_back(job.split(numbers));
  }
  return groups;
}

void MeshGroups::account() const {
  for (ring::ProcessGroup* group :
       {job, tensor.get(), pipeline.get(), model.get(), with_before.get(), with_after.get()})
    group->account();
  for (const auto& group : sharing) group->account();
}

}  // namespace psring::worker
