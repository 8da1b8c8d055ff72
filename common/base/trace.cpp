#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include <psring/common/base/trace.h>

namespace psring {
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

template <class... Bodies>
struct Overloaded : Bodies... {
  using Bodies::operator()...;
};
template <class... Bodies>
Overloaded(Bodies...) -> Overloaded<Bodies...>;

/// Writes events as JSON objects, one after another.
class Writer {
 public:
  Writer(std::string_view process, int pid, Nanoseconds offset, std::uint64_t epoch, Trace::Carried& carried)
      : process_(process), pid_(pid), offset_(offset), epoch_(epoch), carried_(carried) {
    json_ =
        fmt::format(R"({{"name":"process_name","ph":"M","pid":{},"args":{{"name":{}}}}})", pid, json_string(process));
  }

  void name_thread(int thread, std::string_view name) {
    json_ += fmt::format(
        ",\n"
        R"({{"name":"thread_name","ph":"M","pid":{},"tid":{},"args":{{"name":{}}}}})",
        pid_, thread, json_string(name));
  }
  void write(const Event& event) {
    std::visit(Overloaded{[&](const UnitNames&) {}, [&](const StepReport&) {}, [&](const Evaluation&) {},
                          [&](const auto& what) { write(event, what); }},
               event.what);
  }
  void write_dropped(std::size_t count, Moment at) {
    object(fmt::format("{} events were dropped", count), 'i', at, R"("tid":0,"s":"p")");
  }
  std::string take() { return std::move(json_); }

 private:
  double microseconds(Moment at) const { return static_cast<double>((at.time_since_epoch() + offset_).count()) / 1e3; }
  std::string unit_name(std::uint32_t unit) const {
    return unit < carried_.units.size() ? carried_.units[unit] : unit == kNone ? "" : fmt::format("unit {}", unit);
  }
  std::string names_of(Range units) const {
    const auto name = [&](std::size_t unit) { return unit_name(static_cast<std::uint32_t>(unit)); };
    return units.size() == 1 ? name(units.begin) : fmt::format("{} to {}", name(units.begin), name(units.end - 1));
  }
  /// Writes the known members of "args".
  std::string arguments(std::uint64_t step, std::uint32_t unit, std::uint64_t bytes = 0, std::string_view peer = {},
                        std::string_view more = {}) const {
    std::string args = fmt::format(R"("step":{})", step);
    if (unit != kNone) args += fmt::format(R"(,"unit":{})", json_string(unit_name(unit)));
    if (!peer.empty()) args += fmt::format(R"(,"peer":{})", json_string(peer));
    if (bytes > 0) args += fmt::format(R"(,"bytes":{})", bytes);
    return args.append(more);
  }
  /// `rest`: members besides name, phase, process and time.
  void object(std::string_view name, char phase, Moment at, std::string_view rest) {
    json_ += fmt::format(
        ",\n"
        R"({{"name":{},"ph":"{}","pid":{},"ts":{:.3f},{}}})",
        json_string(name), phase, pid_, microseconds(at), rest);
  }
  void slice(std::string_view name, int thread, const Event& event, std::string_view args) {
    object(name, 'X', event.start,
           fmt::format(R"("tid":{},"dur":{:.3f},"args":{{{}}})", thread,
                       static_cast<double>(event.duration.count()) / 1e3, args));
  }

  void write(const Event& event, const Activity& what) {
    std::string name(what.name);
    if (what.layer != kNone) name += fmt::format(" {}", what.layer);
    if (!what.peer.empty()) name += (what.name == "wait" ? " for " : " of ") + what.peer;
    if (what.unit != kNone && what.layer == kNone) name += (what.peer.empty() ? " " : ", ") + unit_name(what.unit);
    slice(name, 0, event, arguments(event.step, what.unit, what.bytes, what.peer));
  }
  void write(const Event& event, const DeviceWork& what) { slice(what.name, 1, event, arguments(event.step, kNone)); }
  void write(const Event& event, const Transfer& what) {
    const std::string name = what.units.size() == 0 ? fmt::format("{} {} bytes", what.name, what.bytes)
                                                    : fmt::format("{} {}", what.name, names_of(what.units));
    ++carried_.transfers;
    const auto unit = what.units.size() == 1 ? static_cast<std::uint32_t>(what.units.begin) : kNone;
    const std::string args = arguments(event.step, unit, what.bytes);
    for (const auto& [phase, at] : {std::pair('b', event.start), std::pair('e', event.start + event.duration)})
      object(name, phase, at,
             fmt::format(R"("cat":"exchange","tid":0,"id2":{{"local":{}}},"args":{{{}}})", carried_.transfers, args));
  }
  void write(const Event& event, const FrameMoved& what) {
    const std::string more =
        fmt::format(R"(,"begin":{},"end":{},"version":{})", what.range.begin, what.range.end, what.version);
    object(
        fmt::format("{} {}", what.operation, what.arrived ? "arrives" : "leaves"), 'i', event.start,
        fmt::format(R"("tid":0,"s":"t","args":{{{}}})", arguments(event.step, what.unit, what.bytes, what.peer, more)));
    const std::string_view from = what.arrived ? std::string_view(what.peer) : process_;
    const std::string_view to = what.arrived ? process_ : std::string_view(what.peer);
    object(what.operation, what.arrived ? 'f' : 's', event.start,
           fmt::format(R"("cat":"frame","tid":0,"id":{})",
                       json_string(fmt::format("{} to {}, {}.{}", from, to, epoch_, what.number))));
  }
  void write(const Event& event, const GradientReady& what) {
    object(fmt::format("gradient of {} {}", names_of(what.units), what.averaged ? "averaged" : "complete"), 'i',
           event.start, fmt::format(R"("tid":0,"s":"t","args":{{{}}})", arguments(event.step, kNone)));
  }
  void write(const Event& event, const Presence& what) {
    const bool parameters = what.values == Presence::Values::parameters;
    std::uint64_t& held = parameters ? carried_.parameters : carried_.gradients;
    what.here ? held += what.bytes : held -= what.bytes;
    object("whole units", 'C', event.start,
           fmt::format(R"("args":{{"parameters, bytes":{},"gradients, bytes":{}}})", carried_.parameters,
                       carried_.gradients));
  }

  const std::string_view process_;
  const int pid_;
  const Nanoseconds offset_;
  const std::uint64_t epoch_;
  Trace::Carried& carried_;
  std::string json_;
};

}  // namespace

void Trace::on_event(const Event& event) {
  const std::scoped_lock lock(mutex_);
  if (events_.size() < kMostEvents)
    events_.push_back(event);
  else
    ++dropped_;
}

std::string Trace::take_json(std::string_view process, int pid, Nanoseconds offset, std::uint64_t epoch) {
  std::vector<Event> events;
  std::size_t dropped = 0;
  {
    const std::scoped_lock lock(mutex_);
    events.swap(events_);
    dropped = std::exchange(dropped_, 0);
  }
  std::size_t named = 0;
  for (const Event& event : events)
    if (const auto* names = std::get_if<UnitNames>(&event.what)) ++named, carried_.units = names->names;
  if (events.size() == named) return "";
  Writer writer(process, pid, offset, epoch, carried_);
  if (std::ranges::any_of(events, [](const Event& event) { return std::holds_alternative<DeviceWork>(event.what); }))
    writer.name_thread(1, "GPU");
  for (const Event& event : events) writer.write(event);
  if (dropped > 0) writer.write_dropped(dropped, events.back().start);
  return writer.take();
}

}  // namespace psring
