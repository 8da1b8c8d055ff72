#include <algorithm>

#include <psring/cli/plan/plan_candidates.h>
#include <psring/cli/plan/plan_meshes.h>
#include <psring/common/base/text/error.h>
#include <psring/common/base/text/spec.h>
#include <psring/worker/model/parallel/cut.h>

namespace psring::cli {
namespace {

constexpr std::size_t kSizes[] = {1, 2, 4, 8};

std::size_t given_size(const options::Given& given, const char* axis) {
  const std::size_t size = given.contains(axis) ? options::whole_number(axis, given.at(axis)) : 1;
  if (size == 0) fail(ErrorKind::usage, "--{} 0: expected at least 1", axis);
  return size;
}

/// Can every layer be divided into so many parts?
bool divides(const worker::Registries& registries, const Spec& model, std::size_t parts) {
  if (!registries.tensor_models.contains(model.name())) return false;
  try {
    registries.tensor_models.make(model, worker::TensorPart(0, parts));
    return true;
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::usage) throw;
    return false;
  }
}

/// The most stages that a plan proposes: one for each block.
std::size_t most_stages(const worker::Model& model) {
  const std::size_t places = worker::stage_begins(model).size();
  return model.blocks.empty() ? places : std::min(places, model.blocks.size());
}

}  // namespace

MeshWord plan_word(const std::string& text, const options::Given& given) {
  MeshWord word = parse_mesh_word(text, given);
  if (!word.axes.empty()) return word;
  word.one_copy = false;
  word.stages = given_size(given, "pipeline");
  word.parts = given_size(given, "tensor") * word.stages;
  for (const char* axis : {"tensor", "pipeline", "pipeline-schedule"})
    if (given.contains(axis)) word.axes[axis] = given.at(axis);
  return word;
}

std::string plan_word_text(const MeshWord& word) {
  std::string text;
  for (const auto& [name, value] : word.axes) text += fmt::format("--{} {} ", name, value);
  return text + "--strategy " + word.strategy;
}

std::vector<std::string> micro_batches_of(const MeshWord& word) {
  return {std::to_string(word.stages), std::to_string(4 * word.stages)};
}

std::vector<std::string> proposed_meshes(const PlanInput& input, const App& app) {
  for (const char* name : {"tensor", "pipeline", "pipeline-schedule", "stages", "compress", "shard-group", "servers"})
    if (input.job.contains(name)) return {};
  const Spec spec = Spec::parse("--model", input.job.contains("model") ? input.job.at("model") : JobOptions().model);
  const worker::Registries& registries = app.worker_registries();
  const std::size_t stages = most_stages(*registries.models.make(spec));
  std::vector<std::string> words;
  for (const std::size_t tensor : kSizes) {
    if (tensor > input.mesh.workers_per_host || (tensor > 1 && !divides(registries, spec, tensor))) continue;
    for (const std::size_t pipeline : kSizes) {
      if (tensor * pipeline == 1 || pipeline > stages || input.mesh.workers() % (tensor * pipeline) != 0) continue;
      std::string mesh = tensor > 1 ? fmt::format("tp:{}+", tensor) : "";
      if (pipeline > 1) mesh += fmt::format("pp:{}:1f1b+", pipeline);
      const bool has_copies = input.mesh.workers() > tensor * pipeline;
      words.push_back(mesh + (has_copies ? "zero1" : "ddp"));  // zero1 moves ddp's bytes, and needs less memory
    }
  }
  return words;
}

}  // namespace psring::cli
