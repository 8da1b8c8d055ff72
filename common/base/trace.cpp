#include <utility>

#include <fmt/format.h>

#include <psring/common/base/trace.h>

namespace psring {

namespace {

/// As a JSON string: names hold whatever a user called a tensor.
std::string quoted(std::string_view text) {
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

}  // namespace

void Trace::Span::begin(std::string_view name, std::string_view detail) {
  name_ = detail.empty() ? std::string(name) : fmt::format("{} {}", name, detail);
  start_ = trace_.clock_.now();
}

void Trace::Span::end() { trace_.events_.push_back({std::move(name_), start_, trace_.clock_.now() - start_}); }

std::string Trace::take_json(std::string_view process, int pid, Nanoseconds offset) {
  if (events_.empty()) return "";
  std::string json =
      fmt::format(R"({{"name":"process_name","ph":"M","pid":{},"args":{{"name":{}}}}})", pid, quoted(process));
  for (const Event& event : events_) {
    const double start_us = static_cast<double>((event.start.time_since_epoch() + offset).count()) / 1e3;
    const double duration_us = static_cast<double>(event.duration.count()) / 1e3;
    json += fmt::format(
        ",\n"
        R"({{"name":{},"ph":"X","pid":{},"tid":0,"ts":{:.3f},"dur":{:.3f}}})",
        quoted(event.name), pid, start_us, duration_us);
  }
  events_.clear();
  return json;
}

}  // namespace psring
