#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <psring/common/base/clock.h>

namespace psring {

/// What a process did when, and what was on its way meanwhile, in the Chrome trace format (opens in Perfetto). One
/// thread writes it.
/// Switched off it costs a branch. Times are of the job's one clock: `offset` is added to this process's.
class Trace {
 public:
  Trace(const Clock& clock, bool on) : clock_(clock), on_(on) {}

  bool on() const { return on_; }

  /// Records from its making to its end, under a name such as "forward layers.0".
  class Span {
   public:
    Span(Trace& trace, std::string_view name, std::string_view detail = {}) : trace_(trace) {
      if (trace.on_) begin(name, detail);
    }
    ~Span() {
      if (trace_.on_) end();
    }
    Span(const Span&) = delete;
    Span& operator=(const Span&) = delete;

   private:
    void begin(std::string_view name, std::string_view detail);
    void end();
    Trace& trace_;
    std::string name_;
    Moment start_;
  };

  /// What is on its way while the thread does other things: any number at once. From its making until it is landed or
  /// destroyed, under a name such as "all_reduce 1048576 bytes".
  class Flight {
   public:
    Flight() = default;  ///< of nothing
    Flight(Trace& trace, std::string name);
    ~Flight() { land(); }
    Flight(Flight&& other) noexcept : trace_(std::exchange(other.trace_, nullptr)), flying_(std::move(other.flying_)) {}
    Flight& operator=(Flight&& other) noexcept {
      std::swap(trace_, other.trace_);
      std::swap(flying_, other.flying_);
      return *this;
    }

    void land();

   private:
    Trace* trace_ = nullptr;  ///< null: nothing is to be recorded any more
    std::pair<std::string, Moment> flying_;
  };

  Moment now() const { return clock_.now(); }
  /// What a device of this process did meanwhile, as is known afterwards: on a track of its own.
  void add_device(std::string name, Moment start, Nanoseconds duration) {
    if (on_) events_.push_back({std::move(name), start, duration, Kind::device});
  }

  /// The events as a comma-separated list of JSON objects ("" where there are none), for `process` with
  /// the number `pid`; what is returned is forgotten.
  std::string take_json(std::string_view process, int pid, Nanoseconds offset);

 private:
  enum class Kind : std::uint8_t { span, flight, device };
  struct Event {
    std::string name;
    Moment start;
    Nanoseconds duration;
    Kind kind = Kind::span;
  };
  const Clock& clock_;
  bool on_;
  std::vector<Event> events_;
};

}  // namespace psring
