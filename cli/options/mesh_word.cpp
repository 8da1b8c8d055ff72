#include <map>
#include <utility>

#include <fmt/format.h>

#include <psring/cli/options/mesh_word.h>
#include <psring/common/base/text/error.h>

namespace psring::cli {
namespace {

void add_axis(const std::string& text, const std::string& part, MeshWord& word) {
  const auto refuse = [&] {
    fail(ErrorKind::usage, "--strategies: expected tp:N, pp:N, pp:N:gpipe or pp:N:1f1b with N from 2, got '{}' in '{}'",
         part, text);
  };
  const bool stages = part.starts_with("pp:");
  const std::string rest = part.substr(3);
  const std::size_t colon = rest.find(':');
  const std::string count = rest.substr(0, colon);
  constexpr std::size_t kMostDigits = 6;
  if (count.empty() || count.size() > kMostDigits || count.find_first_not_of("0123456789") != std::string::npos)
    refuse();
  const std::size_t number = options::whole_number("--strategies", count);
  if (number < 2) refuse();  // an axis of one worker divides nothing
  if (!word.axes.emplace(stages ? "pipeline" : "tensor", std::to_string(number)).second) refuse();
  word.parts *= number;
  if (stages) word.stages = number;
  if (colon == std::string::npos) return;
  const std::string schedule = rest.substr(colon + 1);
  if (!stages || (schedule != "gpipe" && schedule != "1f1b")) refuse();
  word.axes["pipeline-schedule"] = schedule;
}

}  // namespace

MeshWord parse_mesh_word(const std::string& text, const options::Given& given) {
  MeshWord word;
  bool named = false;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find('+', begin), text.size());
    const std::string part = text.substr(begin, end - begin);
    begin = end + 1;
    if (part.starts_with("pp:") || part.starts_with("tp:")) {
      add_axis(text, part, word);
      continue;
    }
    if (part.empty()) fail(ErrorKind::usage, "--strategies: '{}' has an empty part", text);
    if (named) fail(ErrorKind::usage, "--strategies: '{}' names two strategies", text);
    named = true;
    word.strategy = part;
  }
  for (const char* flag : {"tensor", "pipeline", "pipeline-schedule"})
    if (!word.axes.empty() && given.contains(flag))
      fail(ErrorKind::usage, "--{} with --strategies {}: give the mesh in one of them", flag, text);
  word.one_copy = !named;
  return word;
}

void refuse_duplicates(const std::vector<std::string>& words, const options::Given& given) {
  std::map<std::pair<std::string, options::Given>, std::string> seen;
  for (const std::string& word : words) {
    MeshWord mesh = parse_mesh_word(word, given);
    if (!mesh.axes.empty()) mesh.axes.try_emplace("pipeline-schedule", JobOptions().pipeline_schedule);
    if (mesh.one_copy) mesh.axes["workers"] = "";  // pp:2 has one copy of the model, pp:2+ddp any number
    const auto [first, is_new] = seen.emplace(std::pair(mesh.strategy, mesh.axes), word);
    if (is_new) continue;
    if (first->second == word) fail(ErrorKind::usage, "--strategies: '{}' is listed twice", word);
    fail(ErrorKind::usage, "--strategies: '{}' and '{}' are the same", first->second, word);
  }
}

std::string mesh_name(const JobOptions& job) {
  if (!job.mesh().divides_model()) return job.strategy;
  std::string name;
  if (job.tensor > 1) name = fmt::format("tp:{}+", job.tensor);
  if (job.pipeline > 1)
    name += fmt::format("pp:{}{}+", job.pipeline, job.pipeline_schedule == "gpipe" ? "" : ":" + job.pipeline_schedule);
  if (job.data_workers() == 1 && job.strategy == "ddp") return name.substr(0, name.size() - 1);
  return name + job.strategy;
}

}  // namespace psring::cli
