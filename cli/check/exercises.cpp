#include <fmt/format.h>

#include <psring/cli/check/exercises.h>

namespace psring::cli {

std::string Exercise::folder() const { return fmt::format("docs/exercises/{:02}-{}", number, name); }

std::vector<Exercise> exercises() {
  std::vector<Exercise> all;
  all.push_back(reduce_scatter_exercise());
  all.push_back(naive_ddp_exercise());
  all.push_back(buckets_exercise());
  all.push_back(sampler_exercise());
  all.push_back(server_bottleneck_exercise());
  all.push_back(memory_exercise());
  all.push_back(zero1_exercise());
  all.push_back(fsdp_units_exercise());
  all.push_back(event_list_exercise());
  all.push_back(zero_point_exercise());
  all.push_back(slow_link_exercise());
  all.push_back(lecture_notes_exercise());
  all.push_back(tensor_backward_exercise());
  all.push_back(pipeline_exercise());
  return all;
}

}  // namespace psring::cli
