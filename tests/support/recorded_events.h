#pragma once

#include <functional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <psring/common/base/events/event_reader.h>
#include <psring/common/base/events/event_recorder.h>
#include <psring/common/base/events/events.h>
#include <psring/tests/support/hand_clock.h>

namespace psring::test {

/// A stream whose events are recorded, on a clock that the test moves.
struct RecordedStream {
  RecordedStream() { events.record(recorder, true); }

  /// Returns the bytes of all parts since the last call.
  std::string take(const EventOrigin& origin = {.process = "worker 0", .number = 1}) {
    std::string bytes;
    for (const EventRecorder::Bytes& part : recorder.take(origin))
      bytes.append(reinterpret_cast<const char*>(part.data()), part.size());
    return bytes;
  }
  void pass(Nanoseconds time) { clock.at += time; }

  HandClock clock{Moment{std::chrono::microseconds(1000)}};
  EventRecorder recorder;
  Events events{clock};
};

/// Keeps all events of a recording, and the texts that they view.
struct KeptEvents final : RecordedEvents {
  struct Kept {
    Event event;
    std::string file;
    std::string function;
    std::uint64_t line = 0;
  };

  void on_part(const RecordedPart& part) override { parts.push_back(part); }
  void on_event(const RecordedPart& /*part*/, const Event& event, const RecordedSource& source) override {
    Kept kept{.event = event,
              .file = std::string(source.file),
              .function = std::string(source.function),
              .line = source.line};
    const auto keep = [this](std::string_view& text) { text = *texts.emplace(text).first; };
    if (auto* activity = std::get_if<Activity>(&kept.event.what)) {
      keep(activity->name);
      keep(activity->peer.role);
    }
    if (auto* transfer = std::get_if<Transfer>(&kept.event.what)) keep(transfer->name);
    if (auto* frame = std::get_if<FrameMoved>(&kept.event.what)) {
      keep(frame->operation);
      keep(frame->peer.role);
    }
    events.push_back(std::move(kept));
  }

  std::vector<RecordedPart> parts;
  std::vector<Kept> events;
  std::set<std::string, std::less<>> texts;
};

}  // namespace psring::test
