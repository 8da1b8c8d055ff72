#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <source_location>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include <psring/common/base/clock.h>
#include <psring/common/base/range.h>
#include <psring/common/base/system/shared_cell.h>
#include <psring/common/base/text/peer_name.h>

namespace psring {

// The events of a role: one typed stream on one clock. The trainer, the parts of a strategy, the server and the
// transports emit events; the reports in metrics.jsonl and the trace are views of the stream. A new view derives
// EventListener, and is attached with Events::listen where a role makes its stream: worker/role.cpp, server/role.cpp.

inline constexpr std::uint32_t kNone = UINT32_MAX;  ///< marks an event without a unit or a layer

/// Assigns names to the unit numbers of later events.
struct UnitNames {
  std::vector<std::string> names;
};

/// An activity of the process's thread, from the event's start to its end: "step", "forward", "acquire", "push of
/// worker 1".
struct Activity {
  std::string_view name;  ///< static
  std::uint32_t unit = kNone;
  std::uint32_t layer = kNone;
  PeerName peer = {};  ///< the process that the activity serves
  std::uint64_t bytes = 0;
  /// Does the thread wait for others? `perhaps`: it may find that it need not; the event is recorded only if an
  /// activity or a transfer ended meanwhile. Event files do not have this field.
  enum class Waits : std::uint8_t { no, perhaps, yes } waits = Waits::no;
  bool serves_frame = false;  ///< a server's work on a frame: recorded of sampled steps only. Not in event files
};

/// An operation in flight while the thread does other work: a collective, or a push until its answer.
struct Transfer {
  std::string_view name;  ///< static
  Range units = {};       ///< empty: the units of the Topic, if there is one
  std::uint64_t bytes = 0;
};

/// Work of a device.
struct DeviceWork {
  std::string name;
};

/// A frame left this process, or arrived.
struct FrameMoved {
  bool arrived = false;
  std::uint32_t unit = kNone;
  std::string_view operation;  ///< static
  PeerName peer;
  std::uint64_t number = 0;  ///< number of the frame between these processes in this direction, from 0
  Range range = {};
  std::uint64_t bytes = 0;
  std::uint64_t version = 0;
};

/// A unit's whole values came into this process's memory, or were dropped.
struct Presence {
  enum class Values : std::uint8_t { parameters, gradients };
  Values values = Values::parameters;
  std::uint32_t unit = kNone;
  bool here = true;
  std::uint64_t bytes = 0;
};

/// The gradients of these units in this process are complete for a micro-batch, or have become the mean over all
/// workers.
struct GradientReady {
  Range units = {};
  bool averaged = false;
};

/// A figure of the user's own program: its name and value.
struct OwnFigure {
  std::string name;
  double value = 0;
};

/// The end of a worker's step.
struct StepReport {
  std::uint64_t step = 0;
  std::uint64_t epoch = 0;
  double loss = 0;  ///< mean over the samples of this worker in the step; 0 if the worker had none
  std::size_t samples = 0;
  Nanoseconds duration{0};
  Nanoseconds exposed{0};           ///< the part of `duration` that was spent waiting for communication
  double staleness = 0;             ///< of the gradients whose updates the worker was told of; see Pacing::staleness
  std::vector<OwnFigure> own = {};  ///< recorded by the program's step callbacks; not kept in event files
  Nanoseconds bubble{0};            ///< the part of `exposed` that a pipeline's stage waited for other stages
};

/// A worker's share of an evaluation: integer counts, which are added up over the workers.
struct Evaluation {
  std::uint64_t step = 0;  ///< updates made before the evaluation
  double loss_sum = 0;
  std::uint64_t rows = 0;
  std::uint64_t correct = 0;
  std::vector<OwnFigure> own = {};  ///< sums over the rows of Model::metrics; not kept in event files
};

/// The fields of every event.
struct EventHead {
  Moment start;
  Nanoseconds duration{0};
  std::uint64_t step = 0;
  std::source_location source = {};
};

struct Event {
  Moment start;
  Nanoseconds duration{0};  ///< 0: the event has no duration
  std::uint64_t step = 0;
  std::variant<UnitNames, Activity, Transfer, DeviceWork, FrameMoved, Presence, GradientReady, StepReport, Evaluation>
      what;
  std::source_location source = {};  ///< the line that did it; line 0: unknown
};

/// A kind of detail without memory of its own, which can be packed without an Event.
template <class What>
concept FlatDetail = std::is_trivially_copyable_v<What>;

/// A view of the stream.
class EventListener {
 public:
  virtual ~EventListener() = default;
  /// Called by the thread that emits the event, as the event ends. Threads may call it at the same time, except with
  /// reports, which only the thread that trains emits. It may emit events itself.
  virtual void on_event(const Event& event) = 0;
  /// An Activity or a Transfer begins, whose event comes when it ends. `begun.duration` is 0.
  virtual void on_begin(const Event& /*begun*/) {}
};

/// A view that receives only reports.
class ReportListener : public EventListener {
 public:
  void on_event(const Event& event) final;
  virtual void on_step(const StepReport& report) = 0;
  virtual void on_evaluation(const Evaluation& evaluation) = 0;
};

class EventRecorder;

/// The present activity of the thread that trains or serves.
struct Present {
  std::uint64_t step = 0;
  Moment outermost_since = kNever;  ///< begin of the outermost open activity; kNever: none is open
  Nanoseconds busy{0};              ///< time in outermost activities that have ended
  /// The innermost open activity that waits.
  struct Waiting {
    std::string_view name = {};  ///< static; "": none
    PeerName peer = {};
    Moment since;
  } waiting = {};
};

/// A recorder that does not keep all details keeps those of these steps, and of the other steps the outermost
/// activities that do not wait ("step", "evaluate", "save") alone.
constexpr bool is_sampled(std::uint64_t step) { return step < 10 || step % 10 == 0; }

/// The stream. Any thread of the process may emit events. An event that no listener wants costs one branch.
/// Details know the line of source that emits them, as the default argument `source`; helpers pass on their caller's.
class Events {
 public:
  using Source = std::source_location;
  static_assert(sizeof(Source) == sizeof(void*));
  enum class Wanted : std::uint8_t {
    reports,  ///< StepReport and Evaluation
    details,  ///< all events as they end, but no Activity with Waits::perhaps in which nothing happened
    begins    ///< all events, and Activity and Transfer as they begin
  };

  /// REQUIRES: the clock outlives the stream.
  explicit Events(const Clock& clock) : clock_(clock) {}

  /// Adds a listener; call it before the first event.
  /// REQUIRES: the listener outlives the stream's last event.
  void listen(EventListener& listener, Wanted wanted);
  /// Adds a recorder, which wants details: those of the steps of is_sampled, unless it wants `all` or another listener
  /// wants details. Where no other listener wants an event, it takes the event by the way that costs least.
  void record(EventRecorder& recorder, bool all);
  /// Writes the present activity to `cell` whenever an outermost activity or a wait begins or ends, so that another
  /// thread can sample it. Call it before the first event.
  /// REQUIRES: the cell outlives the stream's last event.
  void show_present(SharedCell<Present>& cell) { shown_ = &cell; }
  /// Returns whether a listener wants activities, or a cell shows them.
  bool active() const { return detailed_ || shown_ != nullptr; }
  /// Returns whether a listener wants all kinds of events, of some steps at least.
  bool detailed() const { return detailed_; }

  /// Returns whether a listener wants the details of a step.
  bool wants_details(std::uint64_t step) const { return detailed_ && (all_steps_ || is_sampled(step)); }

  Moment now() const { return clock_.now(); }
  /// Assigns later details to this step.
  void begin_step(std::uint64_t step) {
    step_ = step;
    is_in_step_ = true;
  }
  /// Ends the step. Later details, such as those of an evaluation, are still assigned to it.
  void end_step() { is_in_step_ = false; }
  std::uint64_t step() const { return step_; }
  /// Emits an instant of the present step, if a listener wants it.
  template <class What>
  void instant(What&& what, Source source = Source::current()) {
    instant(std::forward<What>(what), step_, source);
  }
  /// Emits an instant of a step.
  template <class What>
  void instant(What&& what, std::uint64_t step, Source source = Source::current()) {
    if (wants_details(step)) add({now(), Nanoseconds{0}, step, source}, std::forward<What>(what));
  }
  /// Emits the units' names.
  void name(UnitNames units, Source source = Source::current()) {
    if (detailed_) add({now(), Nanoseconds{0}, step_, source}, std::move(units));
  }
  /// Emits a detail of a step that began at `start` and lasted for `duration`, if a listener wants it.
  template <class What>
  void detail(What&& what, std::uint64_t step, Moment start, Nanoseconds duration, Source source = Source::current()) {
    if (wants_details(step)) add_ended({start, duration, step, source}, std::forward<What>(what));
  }
  /// Remembers the line that starts the next transfer, for a helper that many call. For the thread that trains.
  void set_caller(Source source) { caller_ = source; }
  Source caller() const { return caller_; }
  void report(const StepReport& report);
  void report(const Evaluation& evaluation);

  class Wait;
  /// An Activity from its construction to its destruction. For the thread that trains or serves.
  class Span {
   public:
    Span(Events& events, const Activity& activity, Source source = Source::current())
        : Span(events, activity, events.step_, source) {}
    Span(Events& events, const Activity& activity, std::uint64_t step, Source source = Source::current())
        : Span(events, activity, step, kNever, source) {}
    /// `start`: when the activity began; kNever: now.
    Span(Events& events, const Activity& activity, std::uint64_t step, Moment start, Source source = Source::current())
        : events_(events) {
      if (events.active()) begin(activity, step, start, source);
    }
    ~Span() {
      if (is_open_)
        end(events_.now());
      else if (is_outermost_)
        events_.is_within_ = false;
    }
    Span(const Span&) = delete;
    Span& operator=(const Span&) = delete;

   private:
    friend class Wait;
    void begin(const Activity& activity, std::uint64_t step, Moment start, Source source);
    void end(Moment end);
    void show(std::uint64_t step);
    void hide(Moment end);

    Events& events_;
    bool is_open_ = false;  ///< a listener wants it or it is shown, and it has not ended
    bool is_outermost_ = false;
    bool is_shown_ = false;   ///< in Events::present_
    bool is_detail_ = false;  ///< a listener wants it
    Activity activity_;
    std::uint64_t step_ = 0;
    bool was_busy_ = false;         ///< Events::busy_, before
    Present::Waiting was_waiting_;  ///< in Events::present_, before
    Moment start_;
    Source source_;
  };

  /// A Span in which the thread waits for others. Its time is added to a sum, whether anybody listens or not.
  class Wait {
   public:
    Wait(Events& events, const Activity& activity, Nanoseconds& sum, Source source = Source::current())
        : Wait(events, activity, events.now(), sum, source) {}
    /// `start`: when the wait began.
    Wait(Events& events, const Activity& activity, Moment start, Nanoseconds& sum, Source source = Source::current())
        : events_(events), sum_(sum), start_(start), span_(events, waiting(activity), events.step_, start, source) {}
    ~Wait() {
      const Moment end = events_.now();
      sum_ += end - start_;
      if (span_.is_open_) span_.end(end);
    }
    Wait(const Wait&) = delete;
    Wait& operator=(const Wait&) = delete;

   private:
    static Activity waiting(Activity activity) {
      activity.waits = Activity::Waits::yes;
      return activity;
    }

    Events& events_;
    Nanoseconds& sum_;
    const Moment start_;
    Span span_;
  };

  /// A wait for what is complete already. Only listeners that want begins are told.
  void need_not_wait(Activity activity, Source source = Source::current());

  /// While it exists, Transfers that name no units concern these. Topics nest. For the thread that trains.
  class Topic {
   public:
    Topic(Events& events, Range units) : events_(events), outer_(std::exchange(events.topic_, units)) {}
    ~Topic() { events_.topic_ = outer_; }
    Topic(const Topic&) = delete;
    Topic& operator=(const Topic&) = delete;

   private:
    Events& events_;
    const Range outer_;
  };

  /// A Transfer from its construction until it lands or is destroyed. Any number may be in flight. Of a step whose
  /// details are wanted it may have begun in the step before, or land in a later one.
  class Flight {
   public:
    Flight() = default;  ///< records nothing
    Flight(Events& events, const Transfer& transfer, Source source = Source::current());
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
      std::swap(source_, other.source_);
    }

    Events* events_ = nullptr;  ///< null: nothing is in flight
    Transfer transfer_;
    Moment start_;
    Source source_;
  };

 private:
  /// Adds a detail.
  template <class What>
  void add(const EventHead& head, What&& what) {
    if constexpr (FlatDetail<std::remove_cvref_t<What>>)
      if (packs_directly_ && put(head, what)) return;
    emit({head.start, head.duration, head.step, std::forward<What>(what), head.source}, Wanted::details);
  }
  template <class What>
  void add_ended(const EventHead& head, What&& what) {
    busy_.store(true, std::memory_order_relaxed);  // memory order: see Span
    add(head, std::forward<What>(what));
  }
  /// Gives the detail to the recorder, or returns false.
  template <FlatDetail What>
  bool put(const EventHead& head, const What& what);
  /// Passes the event to the listeners that want at least `kind`.
  void emit(const Event& event, Wanted kind);
  /// Passes the begin of an event to the listeners that want begins.
  void begin(const Event& event);

  const Clock& clock_;
  std::vector<std::pair<EventListener*, Wanted>> listeners_;
  bool detailed_ = false;
  bool begins_ = false;     ///< a listener wants Wanted::begins
  bool is_within_ = false;  ///< an outermost Span is open
  SharedCell<Present>* shown_ = nullptr;
  Present present_;         ///< the value last written to `shown_`
  bool is_in_step_ = true;  ///< end_step was not called since the last begin_step
  std::atomic<std::uint64_t> step_ = 0;
  EventRecorder* recorder_ = nullptr;
  bool packs_directly_ = false;     ///< the recorder is the only listener that wants details
  bool all_steps_ = false;          ///< a listener wants the details of all steps
  std::atomic<bool> busy_ = false;  ///< a detail with a duration ended since the innermost open Span began
  Range topic_;
  Source caller_;
};

}  // namespace psring
