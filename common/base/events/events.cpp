#include <utility>

#include <psring/common/base/events/event_recorder.h>
#include <psring/common/base/events/events.h>

namespace psring {

void ReportListener::on_event(const Event& event) {
  if (const auto* step = std::get_if<StepReport>(&event.what)) on_step(*step);
  if (const auto* evaluation = std::get_if<Evaluation>(&event.what)) on_evaluation(*evaluation);
}

void Events::listen(EventListener& listener, Wanted wanted) {
  listeners_.emplace_back(&listener, wanted);
  detailed_ = detailed_ || wanted >= Wanted::details;
  begins_ = begins_ || wanted == Wanted::begins;
  packs_directly_ = packs_directly_ && wanted < Wanted::details;
  all_steps_ = all_steps_ || wanted >= Wanted::details;
}

void Events::record(EventRecorder& recorder, bool all) {
  const bool others_want_all = std::exchange(all_steps_, false);
  const bool alone = !detailed_;
  listen(recorder, Wanted::details);
  recorder_ = &recorder;
  packs_directly_ = alone;
  all_steps_ = others_want_all || all;
}

template <FlatDetail What>
bool Events::put(const EventHead& head, const What& what) {
  return recorder_->put(head, what);
}
template bool Events::put(const EventHead& head, const Activity& what);
template bool Events::put(const EventHead& head, const Transfer& what);
template bool Events::put(const EventHead& head, const FrameMoved& what);
template bool Events::put(const EventHead& head, const Presence& what);
template bool Events::put(const EventHead& head, const GradientReady& what);

void Events::emit(const Event& event, Wanted kind) {
  for (const auto& [listener, wanted] : listeners_)
    if (wanted >= kind) listener->on_event(event);
}

void Events::begin(const Event& event) {
  for (const auto& [listener, wanted] : listeners_)
    if (wanted == Wanted::begins) listener->on_begin(event);
}

void Events::report(const StepReport& report) {
  emit({now() - report.duration, report.duration, report.step, report}, Wanted::reports);
}

void Events::report(const Evaluation& evaluation) {
  emit({now(), Nanoseconds{0}, evaluation.step, evaluation}, Wanted::reports);
}

void Events::Span::begin(const Activity& activity, std::uint64_t step, Moment start, Source source) {
  const bool waits = activity.waits != Activity::Waits::no;
  is_outermost_ = !std::exchange(events_.is_within_, true);
  is_detail_ = events_.wants_details(step) || (events_.detailed_ && is_outermost_ && !activity.serves_frame && !waits);
  is_shown_ = events_.shown_ != nullptr && (is_outermost_ || waits);
  is_open_ = is_detail_ || is_shown_;
  if (!is_open_) return;
  start_ = start == kNever ? events_.now() : start;
  activity_ = activity;
  if (is_shown_) show(step);
  if (!is_detail_) return;
  step_ = step;
  source_ = source;
  // Memory order: `busy_` is for the thread of the spans; others set it, too, but hand nothing over by it: relaxed.
  was_busy_ = events_.busy_.load(std::memory_order_relaxed);
  events_.busy_.store(false, std::memory_order_relaxed);
  if (events_.begins_) events_.begin({start_, Nanoseconds{0}, step_, activity_, source_});
}

void Events::Span::end(Moment end) {
  is_open_ = false;
  if (is_shown_) hide(end);
  if (std::exchange(is_outermost_, false)) events_.is_within_ = false;
  if (!is_detail_) return;
  const bool was_busy = events_.busy_.load(std::memory_order_relaxed);
  const bool is_empty = activity_.waits == Activity::Waits::perhaps && !was_busy;
  if (!is_empty || was_busy_) events_.busy_.store(true, std::memory_order_relaxed);
  if (is_empty && !events_.begins_) return;
  const EventHead head{start_, end - start_, step_, source_};
  if (events_.packs_directly_ && events_.put(head, activity_)) return;
  events_.emit({head.start, head.duration, head.step, activity_, head.source},
               is_empty ? Wanted::begins : Wanted::details);
}

void Events::Span::show(std::uint64_t step) {
  Present& present = events_.present_;
  present.step = step;
  if (is_outermost_) present.outermost_since = start_;
  was_waiting_ = present.waiting;
  if (activity_.waits != Activity::Waits::no) present.waiting = {activity_.name, activity_.peer, start_};
  events_.shown_->write(present);
}

void Events::Span::hide(Moment end) {
  Present& present = events_.present_;
  if (is_outermost_) {
    present.outermost_since = kNever;
    present.busy += end - start_;
  }
  present.waiting = was_waiting_;
  events_.shown_->write(present);
}

void Events::need_not_wait(Activity activity, Source source) {
  if (!begins_) return;
  activity.waits = Activity::Waits::perhaps;
  const Span span(*this, activity, source);
}

Events::Flight::Flight(Events& events, const Transfer& transfer, Source source) {
  const std::uint64_t step = events.step();
  if (!events.wants_details(step) && !(events.is_in_step_ && events.wants_details(step + 1))) return;
  source_ = source;
  events_ = &events;
  transfer_ = transfer;
  if (transfer_.units.size() == 0) transfer_.units = events.topic_;
  start_ = events.now();
  if (events.begins_) events.begin({start_, Nanoseconds{0}, events.step_, transfer_, source_});
}

void Events::Flight::land() {
  if (events_ == nullptr) return;
  Events& events = *std::exchange(events_, nullptr);
  events.add_ended({start_, events.now() - start_, events.step(), source_}, transfer_);
}

}  // namespace psring
