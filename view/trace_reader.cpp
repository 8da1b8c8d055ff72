#include <charconv>
#include <fstream>
#include <map>
#include <string_view>

#include <fmt/format.h>

#include <psring/common/base/error.h>
#include <psring/common/base/json.h>
#include <psring/view/trace_reader.h>

namespace psring::view {
namespace {

TraceEvent event_of(const Json& json) {
  TraceEvent event{.name = json.at("name").get<std::string>(),
                   .phase = json.at("ph").get<std::string>().at(0),
                   .thread = json.value("tid", 0),
                   .at = json.at("ts").get<double>() / 1e6,
                   .duration = json.value("dur", 0.0) / 1e6};
  if (json.contains("id")) event.id = json["id"].get<std::string>();
  if (json.contains("id2")) event.id = fmt::format("{}", json["id2"].at("local").get<std::uint64_t>());
  if (!json.contains("args")) return event;
  const Json& args = json["args"];
  event.step = args.value("step", std::uint64_t{0});
  event.unit = args.value("unit", "");
  event.bytes = args.value("bytes", std::uint64_t{0});
  event.parameters = args.value("parameters, bytes", std::uint64_t{0});
  event.gradients = args.value("gradients, bytes", std::uint64_t{0});
  return event;
}

/// Finds phase and time without parsing the line: most lines of a trace are not wanted.
bool is_wanted(const std::string& line, const EventFilter& wanted) {
  constexpr std::string_view kPhase = R"(","ph":")";
  constexpr std::string_view kTime = R"(,"ts":)";
  const std::size_t phase = line.find(kPhase);
  const std::size_t time = line.find(kTime, phase);
  if (phase == std::string::npos || time == std::string::npos) return true;  // the parser says what is wrong
  double at = 0;
  std::from_chars(line.data() + time + kTime.size(), line.data() + line.size(), at);
  return wanted(line[phase + kPhase.size()], at / 1e6);
}

}  // namespace

void for_each_event(const std::filesystem::path& file, const EventFilter& wanted,
                    const std::function<void(const TraceEvent&)>& body) {
  std::ifstream in(file, std::ios::binary);
  std::map<std::int64_t, std::string> processes;
  std::size_t number = 0;
  for (std::string line; std::getline(in, line);) {
    ++number;
    if (line.starts_with("{\"traceEvents\"") || line.starts_with("]}") || line.empty()) continue;
    if (!is_wanted(line, wanted)) continue;
    if (line.back() == ',') line.pop_back();
    try {
      const Json json = Json::parse(line);
      const auto pid = json.at("pid").get<std::int64_t>();
      if (json.at("ph") == "M") {
        if (json.at("name") == "process_name") processes[pid] = json.at("args").at("name").get<std::string>();
        continue;
      }
      TraceEvent event = event_of(json);
      event.process = processes[pid];
      body(event);
    } catch (const JsonError& error) {
      fail(ErrorKind::data, "{}:{}: is not a line that psring writes ({})", file.string(), number, error.what());
    }
  }
}

}  // namespace psring::view
