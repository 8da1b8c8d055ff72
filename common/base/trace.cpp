#include <algorithm>
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

Trace::Flight::Flight(Trace& trace, std::string name) {
  if (!trace.on_) return;
  trace_ = &trace;
  flying_ = {std::move(name), trace.clock_.now()};
}

void Trace::Flight::land() {
  if (trace_ == nullptr) return;
  Trace& trace = *std::exchange(trace_, nullptr);
  const auto& [name, start] = flying_;
  trace.events_.push_back({name, start, trace.clock_.now() - start, Kind::flight});
}

std::string Trace::take_json(std::string_view process, int pid, Nanoseconds offset) {
  if (events_.empty()) return "";
  std::string json =
      fmt::format(R"({{"name":"process_name","ph":"M","pid":{},"args":{{"name":{}}}}})", pid, quoted(process));
  if (std::ranges::any_of(events_, [](const Event& event) { return event.kind == Kind::device; }))
    json += fmt::format(
        ",\n"
        R"({{"name":"thread_name","ph":"M","pid":{},"tid":1,"args":{{"name":"GPU"}}}})",
        pid);
  std::size_t flights = 0;
  for (const Event& event : events_) {
    const double start_us = static_cast<double>((event.start.time_since_epoch() + offset).count()) / 1e3;
    const double duration_us = static_cast<double>(event.duration.count()) / 1e3;
    const std::string name = quoted(event.name);
    if (event.kind != Kind::flight) {
      json += fmt::format(
          ",\n"
          R"({{"name":{},"ph":"X","pid":{},"tid":{},"ts":{:.3f},"dur":{:.3f}}})",
          name, pid, event.kind == Kind::device ? 1 : 0, start_us, duration_us);
      continue;
    }
    ++flights;
    for (const auto& [phase, at] : {std::pair("b", start_us), std::pair("e", start_us + duration_us)})
      json += fmt::format(
          ",\n"
          R"({{"name":{},"cat":"exchange","ph":"{}","pid":{},"tid":0,"id2":{{"local":{}}},"ts":{:.3f}}})",
          name, phase, pid, flights, at);
  }
  events_.clear();
  return json;
}

}  // namespace psring
