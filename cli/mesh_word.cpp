#include <fmt/format.h>

#include <psring/cli/mesh_word.h>
#include <psring/common/base/error.h>
#include <psring/worker/model/parallel/schedule.h>

namespace psring::cli {
namespace {

void add_axis(const std::string& text, const std::string& part, MeshWord& word) {
  const auto refuse = [&] {
    fail(ErrorKind::usage, "--strategies: expected tp:N, pp:N, pp:N:gpipe or pp:N:1f1b, got '{}' in '{}'", part, text);
  };
  const bool stages = part.starts_with("pp:");
  const std::string rest = part.substr(3);
  const std::size_t colon = rest.find(':');
  const std::string count = rest.substr(0, colon);
  constexpr std::size_t kMostDigits = 6;
  if (count.empty() || count.size() > kMostDigits || count.find_first_not_of("0123456789") != std::string::npos ||
      count.find_first_not_of('0') == std::string::npos)
    refuse();
  if (!word.axes.emplace(stages ? "pipeline" : "tensor", count).second) refuse();
  const std::size_t number = options::whole_number("--strategies", count);
  word.parts *= number;
  if (stages) word.stages = number;
  if (colon == std::string::npos) return;
  if (!stages) refuse();
  worker::parse_pipeline_schedule(word.axes["pipeline-schedule"] = rest.substr(colon + 1));
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
