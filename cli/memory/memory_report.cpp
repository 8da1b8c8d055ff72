#include <algorithm>
#include <vector>

#include <psring/cli/memory/memory_report.h>
#include <psring/common/base/text/error.h>
#include <psring/common/base/text/json.h>
#include <psring/common/base/text/text.h>

namespace psring::cli {
namespace {

struct Sample {
  double time_s = 0;
  std::string process;
  std::optional<std::uint64_t> rss;
  std::optional<std::uint64_t> pss;
};

std::optional<std::uint64_t> bytes(const Json& json, const char* name) {
  return !json.contains(name) || json[name].is_null() ? std::nullopt : std::optional(json[name].get<std::uint64_t>());
}

}  // namespace

SystemMemory read_system_memory(const std::filesystem::path& file) {
  std::vector<Sample> samples;
  LineReader lines(file.string(), LineReader::IfMissing::no_lines);
  for (std::string line; lines.next(line);) {
    try {
      const Json json = Json::parse(line);
      samples.push_back({json.at("time_s").get<double>(),
                         fmt::format("{} {}", json.at("role").get<std::string>(), json.at("rank").get<std::uint64_t>()),
                         bytes(json, "rss"), bytes(json, "pss")});
    } catch (const JsonError& error) {
      fail(ErrorKind::data, "{}: {}", file.string(), error.what());
    }
  }
  std::stable_sort(samples.begin(), samples.end(), [](const auto& a, const auto& b) { return a.time_s < b.time_s; });
  SystemMemory memory;
  std::map<std::string, std::uint64_t> last;
  for (const Sample& sample : samples) {
    if (sample.rss) memory.rss[sample.process] = std::max(memory.rss[sample.process], *sample.rss);
    if (!sample.pss) continue;
    memory.pss[sample.process] = std::max(memory.pss[sample.process], *sample.pss);
    last[sample.process] = *sample.pss;
    std::uint64_t together = 0;
    for (const auto& [process, pss] : last) together += pss;
    memory.pss_together = std::max(memory.pss_together.value_or(0), together);
  }
  return memory;
}

}  // namespace psring::cli
