#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include <psring/common/base/clock.h>
#include <psring/common/base/range.h>

namespace psring {

// The events of a role: one typed stream on one clock. The trainer, the parts of a strategy, the server and the
// transports emit events; the reports in metrics.jsonl and the trace are views of the stream. A new view derives
// EventListener, and is attached with Events::listen where a role makes its stream: worker/role.cpp, server/role.cpp.

inline constexpr std::uint32_t kNone = UINT32_MAX;  ///< an event is about no unit, no layer

/// The names of the units that later events number.
struct UnitNames {
  std::vector<std::string> names;
};

/// The process's thread did this from the event's start to its end: "step", "forward", "acquire", "push of worker 1".
struct Activity {
  std::string_view name;  ///< static
  std::uint32_t unit = kNone;
  std::uint32_t layer = kNone;
  std::string peer = {};  ///< the process that it was done for; "": none
  std::uint64_t bytes = 0;
};

/// An operation was on its way while the thread went on with other work: a collective, or a push until its answer.
struct Transfer {
  std::string name;
  std::uint32_t unit = kNone;
  std::uint64_t bytes = 0;
};

/// A device did this.
struct DeviceWork {
  std::string name;
};

/// A frame left this process, or arrived.
struct FrameMoved {
  bool arrived = false;
  std::string_view operation;  ///< static
  std::string peer;
  std::uint64_t number = 0;  ///< of the frame between these processes in this direction, from 0
  std::uint32_t unit = kNone;
  Range range = {};
  std::uint64_t bytes = 0;
  std::uint64_t version = 0;
};

/// The whole values of a unit came into this process's memory, or were dropped.
struct Presence {
  enum class Values : std::uint8_t { parameters, gradients };
  Values values = Values::parameters;
  std::uint32_t unit = kNone;
  bool here = true;
  std::uint64_t bytes = 0;
};

/// A step of a worker ended.
struct StepReport {
  std::uint64_t step = 0;
  std::uint64_t epoch = 0;
  double loss = 0;  ///< mean over the samples of this worker in the step; 0 if the worker had none
  std::size_t samples = 0;
  Nanoseconds duration{0};
  Nanoseconds exposed{0};  ///< the part of `duration` that was spent waiting for communication
  double staleness = 0;    ///< of the gradients whose updates the worker heard of; see Pacing::staleness
};

/// A worker's share of an evaluation: integer counts, to be added up over the workers.
struct Evaluation {
  std::uint64_t step = 0;  ///< updates made before it
  double loss_sum = 0;
  std::uint64_t rows = 0;
  std::uint64_t correct = 0;
};

struct Event {
  Moment start;
  Nanoseconds duration{0};  ///< 0: the event is a moment
  std::uint64_t step = 0;
  std::variant<UnitNames, Activity, Transfer, DeviceWork, FrameMoved, Presence, StepReport, Evaluation> what;
};

/// A view of the stream.
class EventListener {
 public:
  virtual ~EventListener() = default;
  /// Called with one event after the other, in the order in which they end; from whichever thread emits them.
  virtual void on_event(const Event& event) = 0;
};

/// A view of the reports alone.
class ReportListener : public EventListener {
 public:
  void on_event(const Event& event) final;
  virtual void on_step(const StepReport& report) = 0;
  virtual void on_evaluation(const Evaluation& evaluation) = 0;
};

/// The stream. Events may be emitted by any thread of the process. If nobody listens to details, a detail costs a
/// branch.
class Events {
 public:
  enum class Wanted : std::uint8_t { reports, details };

  /// REQUIRES: the clock outlives it.
  explicit Events(const Clock& clock) : clock_(clock) {}

  /// `reports`: the listener hears StepReport and Evaluation only. REQUIRES: the first event comes after this call, and
  /// the listener outlives the last one.
  void listen(EventListener& listener, Wanted wanted);
  /// Somebody listens to more than reports.
  bool detailed() const { return detailed_; }

  Moment now() const { return clock_.now(); }
  /// Later details belong to this step.
  void begin_step(std::uint64_t step) { step_ = step; }
  /// Emits a detail that happened now, and took no time. Does nothing unless `detailed`.
  template <class What>
  void detail(What&& what) {
    if (detailed_) emit({now(), Nanoseconds{0}, step_, std::forward<What>(what)}, Wanted::details);
  }
  /// A detail that began at `start` and lasted for `duration`.
  template <class What>
  void detail(What&& what, Moment start, Nanoseconds duration) {
    if (detailed_) emit({start, duration, step_, std::forward<What>(what)}, Wanted::details);
  }
  void report(const StepReport& report);
  void report(const Evaluation& evaluation);

  /// An Activity from its construction to its destruction.
  class Span {
   public:
    Span(Events& events, Activity activity) : Span(events, std::move(activity), events.step_) {}
    Span(Events& events, Activity activity, std::uint64_t step) : events_(events) {
      if (events.detailed_) begin(std::move(activity), step);
    }
    ~Span() {
      if (events_.detailed_) end();
    }
    Span(const Span&) = delete;
    Span& operator=(const Span&) = delete;

   private:
    void begin(Activity&& activity, std::uint64_t step);
    void end();

    Events& events_;
    Activity activity_;
    std::uint64_t step_ = 0;
    Moment start_;
  };

  /// A Transfer from its construction until it lands, or is destroyed. Any number may be under way.
  class Flight {
   public:
    Flight() = default;  ///< of nothing
    Flight(Events& events, Transfer transfer);
    ~Flight() { land(); }
    Flight(Flight&& other) noexcept { swap(other); }
    Flight& operator=(Flight&& other) noexcept {
      swap(other);
      return *this;
    }
    void land();

   private:
    void swap(Flight& other) noexcept {
      std::swap(events_, other.events_);
      std::swap(transfer_, other.transfer_);
      std::swap(start_, other.start_);
    }

    Events* events_ = nullptr;  ///< null: nothing is in flight
    Transfer transfer_;
    Moment start_;
  };

 private:
  void emit(Event&& event, Wanted kind);

  const Clock& clock_;
  std::vector<std::pair<EventListener*, Wanted>> listeners_;
  bool detailed_ = false;
  std::atomic<std::uint64_t> step_ = 0;
  std::mutex mutex_;  ///< listeners hear one event at a time
};

}  // namespace psring
