#include <algorithm>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include <psring/common/base/text/error.h>
#include <psring/view/trace_events.h>

namespace psring::view {

namespace fs = std::filesystem;

/// Writes the events of a trace for one recorded event.
class TraceTranslator::Writer {
 public:
  Writer(TraceTranslator& translator, const RecordedPart& part, const Event& event)
      : translator_(translator), stream_(*translator.stream_), part_(part), event_(event) {}

  void write(const UnitNames& what) { stream_.units = what.names; }
  void write(const StepReport& /*what*/) {}
  void write(const Evaluation& /*what*/) {}

  void write(const Activity& what) {
    if (!wants('X', event_.start)) return;
    std::string name(what.name);
    if (what.layer != kNone) name += fmt::format(" {}", what.layer);
    if (!what.peer.empty()) name.append(what.name == "wait" ? " for " : " of ").append(what.peer.text());
    if (what.unit != kNone && what.layer == kNone) name += (what.peer.empty() ? " " : ", ") + unit_name(what.unit);
    TraceEvent slice = at('X', event_.start, std::move(name));
    slice.duration = event_.duration;
    slice.unit = unit_name(what.unit);
    slice.peer = what.peer.text();
    slice.bytes = what.bytes;
    pass(std::move(slice));
  }

  void write(const DeviceWork& what) {
    if (!std::exchange(stream_.has_device, true) && wants('M', event_.start)) {
      TraceEvent thread = at('M', event_.start, "GPU");
      thread.thread = 1;
      pass(std::move(thread));
    }
    if (!wants('X', event_.start)) return;
    TraceEvent slice = at('X', event_.start, what.name);
    slice.thread = 1;
    slice.duration = event_.duration;
    pass(std::move(slice));
  }

  void write(const Transfer& what) {
    ++translator_.transfers_;
    for (const auto& [phase, moment] : {std::pair('b', event_.start), std::pair('e', event_.start + event_.duration)}) {
      if (!wants(phase, moment)) continue;
      TraceEvent end = at(phase, moment,
                          what.units.empty() ? fmt::format("{} {} bytes", what.name, what.bytes)
                                             : fmt::format("{} {}", what.name, names_of(what.units)));
      end.id = fmt::format("{}", translator_.transfers_);
      if (what.units.size() == 1) end.unit = unit_name(static_cast<std::uint32_t>(what.units.begin));
      end.bytes = what.bytes;
      pass(std::move(end));
    }
  }

  void write(const FrameMoved& what) {
    if (wants('i', event_.start)) {
      TraceEvent frame =
          at('i', event_.start, fmt::format("{} {}", what.operation, what.arrived ? "arrives" : "leaves"));
      frame.unit = unit_name(what.unit);
      frame.peer = what.peer.text();
      frame.bytes = what.bytes;
      frame.more = fmt::format(R"(,"begin":{},"end":{},"version":{})", what.range.begin, what.range.end, what.version);
      pass(std::move(frame));
    }
    const char phase = what.arrived ? 'f' : 's';
    if (!wants(phase, event_.start)) return;
    TraceEvent end = at(phase, event_.start, std::string(what.operation));
    const std::string& self = part_.origin.process;
    end.id = fmt::format("{} to {}, {}.{}", what.arrived ? what.peer.text() : self,
                         what.arrived ? self : what.peer.text(), part_.origin.epoch, what.number);
    pass(std::move(end));
  }

  void write(const GradientReady& what) {
    if (wants('i', event_.start))
      pass(at('i', event_.start,
              fmt::format("gradient of {} {}", names_of(what.units), what.averaged ? "averaged" : "complete")));
  }

  void write(const Presence& what) {
    (what.values == Presence::Values::parameters ? stream_.parameters : stream_.gradients)[what.unit] =
        what.here ? what.bytes : 0;
    if (!wants('C', event_.start)) return;
    const auto sum = [](const auto& units) {
      std::uint64_t bytes = 0;
      for (const auto& [unit, held] : units) bytes += held;
      return bytes;
    };
    TraceEvent counter = at('C', event_.start, "whole units");
    counter.parameters = sum(stream_.parameters);
    counter.gradients = sum(stream_.gradients);
    pass(std::move(counter));
  }

 private:
  Nanoseconds on_job_clock(Moment moment) const { return moment.time_since_epoch() + part_.origin.offset; }
  bool wants(char phase, Moment moment) const { return translator_.wanted_(phase, seconds(on_job_clock(moment))); }
  TraceEvent at(char phase, Moment moment, std::string name) const {
    return {.phase = phase,
            .name = std::move(name),
            .process = part_.origin.process,
            .number = part_.origin.number,
            .start = on_job_clock(moment),
            .step = event_.step};
  }
  void pass(TraceEvent&& event) const { translator_.body_(std::move(event)); }

  std::string unit_name(std::uint32_t unit) const {
    if (unit == kNone) return "";
    return unit < stream_.units.size() ? stream_.units[unit] : fmt::format("unit {}", unit);
  }
  std::string names_of(Range units) const {
    const auto name = [&](std::size_t unit) { return unit_name(static_cast<std::uint32_t>(unit)); };
    return units.size() == 1 ? name(units.begin) : fmt::format("{} to {}", name(units.begin), name(units.end - 1));
  }

  TraceTranslator& translator_;
  Stream& stream_;
  const RecordedPart& part_;
  const Event& event_;
};

void TraceTranslator::on_part(const RecordedPart& part) {
  const auto [found, added] = streams_.try_emplace({part.origin.process, part.stream});
  stream_ = &found->second;
  TraceEvent note{.process = part.origin.process,
                  .number = part.origin.number,
                  .start = part.base.time_since_epoch() + part.origin.offset};
  if (added && wanted_('M', note.at())) {
    note.phase = 'M';
    note.name = part.origin.process;
    body_(TraceEvent(note));
  }
  if (part.dropped == 0 || !wanted_('i', note.at())) return;
  note.phase = 'i';
  note.name = fmt::format("{} events were dropped", part.dropped);
  body_(std::move(note));
}

void TraceTranslator::on_event(const RecordedPart& part, const Event& event, const RecordedSource& /*source*/) {
  std::visit([&](const auto& what) { Writer(*this, part, event).write(what); }, event.what);
}

void for_each_trace_event(const fs::path& folder, const TraceFilter& wanted, const TraceTranslator::Body& body) {
  std::error_code error;
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(folder, error))
    if (entry.path().extension() == ".events") files.push_back(entry.path());
  if (error && error != std::errc::no_such_file_or_directory)
    fail(ErrorKind::data, "{}: {}", folder.string(), error.message());
  std::sort(files.begin(), files.end());
  TraceTranslator translator(wanted, body);
  for (const fs::path& file : files) read_events(file.string(), translator);
}

}  // namespace psring::view
