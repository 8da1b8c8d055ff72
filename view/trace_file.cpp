#include <fstream>
#include <string_view>

#include <fmt/format.h>

#include <psring/common/base/system/file.h>
#include <psring/common/base/text/error.h>
#include <psring/view/trace_file.h>

namespace psring::view {
namespace {

/// Returns the text as a JSON string: names contain whatever a user called a tensor.
std::string json_string(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    if (static_cast<unsigned char>(c) < 0x20) {
      out += fmt::format("\\u{:04x}", static_cast<int>(c));
    } else {
      out += c;
    }
  }
  return out + '"';
}

double microseconds(Nanoseconds time) { return static_cast<double>(time.count()) / 1e3; }

/// Returns the members of "args" that the event has.
std::string arguments(const TraceEvent& event) {
  std::string args = fmt::format(R"("step":{})", event.step);
  if (!event.unit.empty()) args += fmt::format(R"(,"unit":{})", json_string(event.unit));
  if (!event.peer.empty()) args += fmt::format(R"(,"peer":{})", json_string(event.peer));
  if (event.bytes > 0) args += fmt::format(R"(,"bytes":{})", event.bytes);
  return args.append(event.more);
}

/// Returns the members besides name, phase, process and time.
std::string members(const TraceEvent& event) {
  switch (event.phase) {
    case 'X':
      return fmt::format(R"("tid":{},"dur":{:.3f},"args":{{{}}})", event.thread, microseconds(event.duration),
                         arguments(event));
    case 'b':
    case 'e':
      return fmt::format(R"("cat":"exchange","tid":0,"id2":{{"local":{}}},"args":{{{}}})", event.id, arguments(event));
    case 's':
    case 'f':
      return fmt::format(R"("cat":"frame","tid":0,"id":{})", json_string(event.id));
    case 'C':
      return fmt::format(R"("args":{{"parameters, bytes":{},"gradients, bytes":{}}})", event.parameters,
                         event.gradients);
    default:
      return fmt::format(R"("tid":0,"s":"t","args":{{{}}})", arguments(event));
  }
}

}  // namespace

std::string to_json(const TraceEvent& event) {
  if (event.phase == 'M')
    return event.thread == 0
               ? fmt::format(R"({{"name":"process_name","ph":"M","pid":{},"args":{{"name":{}}}}})", event.number,
                             json_string(event.name))
               : fmt::format(R"({{"name":"thread_name","ph":"M","pid":{},"tid":{},"args":{{"name":{}}}}})",
                             event.number, event.thread, json_string(event.name));
  return fmt::format(R"({{"name":{},"ph":"{}","pid":{},"ts":{:.3f},{}}})", json_string(event.name), event.phase,
                     event.number, microseconds(event.start), members(event));
}

std::filesystem::path write_trace(const std::filesystem::path& run) {
  check_folder(run.string());
  const std::filesystem::path events = run / kEventsFolder;
  if (std::error_code error; !std::filesystem::is_directory(events, error))
    fail(ErrorKind::data, "{}: holds no recorded events; record them with --events on", run.string());
  const std::filesystem::path path = run / "trace.json";
  std::ofstream out(path);
  out << "{\"traceEvents\":[\n";
  const char* before = "";
  for_each_trace_event(
      events, [](char, double) { return true; },
      [&](const TraceEvent& event) {
        out << before << to_json(event);
        before = ",\n";
      });
  out << "\n]}\n";
  flush(out, path.string());
  return path;
}

}  // namespace psring::view
