#include <psring/common/base/events.h>

namespace psring {

void ReportListener::on_event(const Event& event) {
  if (const auto* step = std::get_if<StepReport>(&event.what)) on_step(*step);
  if (const auto* evaluation = std::get_if<Evaluation>(&event.what)) on_evaluation(*evaluation);
}

void Events::listen(EventListener& listener, Wanted wanted) {
  listeners_.emplace_back(&listener, wanted);
  active_ = active_ || wanted >= Wanted::outlines;
  detailed_ = detailed_ || wanted >= Wanted::details;
  begins_ = begins_ || wanted == Wanted::outlines || wanted == Wanted::begins;
  all_begins_ = all_begins_ || wanted == Wanted::begins;
}

void Events::emit(const Event& event, Wanted kind, bool is_empty) {
  if (detailed_ && !is_empty) count_.fetch_add(1, std::memory_order_relaxed);
  for (const auto& [listener, wanted] : listeners_)
    if (wanted >= kind && !(is_empty && wanted == Wanted::details)) listener->on_event(event);
}

void Events::begin(const Event& event, bool is_outline) {
  for (const auto& [listener, wanted] : listeners_)
    if (wanted == Wanted::begins || (wanted == Wanted::outlines && is_outline)) listener->on_begin(event);
}

void Events::report(const StepReport& report) {
  emit({now() - report.duration, report.duration, report.step, report}, Wanted::reports);
}

void Events::report(const Evaluation& evaluation) {
  emit({now(), Nanoseconds{0}, evaluation.step, evaluation}, Wanted::reports);
}

void Events::Span::begin(const Activity& activity, std::uint64_t step, Moment start, Source source) {
  is_outermost_ = !std::exchange(events_.is_within_, true);
  is_outline_ = is_outermost_ || activity.waits != Activity::Waits::no;
  if (!is_outline_ && !events_.detailed_) return;
  is_open_ = true;
  activity_ = activity;
  step_ = step;
  source_ = source;
  count_ = events_.count_.load(std::memory_order_relaxed);
  start_ = start == kNever ? events_.now() : start;
  if (events_.begins_) events_.begin({start_, Nanoseconds{0}, step_, activity_, source_}, is_outline_);
}

void Events::Span::end(Moment end) {
  is_open_ = false;
  if (is_outermost_) events_.is_within_ = false;
  const bool is_empty =
      activity_.waits == Activity::Waits::perhaps && count_ == events_.count_.load(std::memory_order_relaxed);
  events_.emit({start_, end - start_, step_, activity_, source_}, is_outline_ ? Wanted::outlines : Wanted::details,
               is_empty);
}

void Events::need_not_wait(Activity activity, Source source) {
  if (!all_begins_) return;
  activity.waits = Activity::Waits::perhaps;
  const Span span(*this, activity, source);
}

Events::Flight::Flight(Events& events, const Transfer& transfer, Source source) {
  if (!events.detailed()) return;
  source_ = source;
  events_ = &events;
  transfer_ = transfer;
  if (transfer_.units.size() == 0) transfer_.units = events.topic_;
  start_ = events.now();
  if (events.begins_) events.begin({start_, Nanoseconds{0}, events.step_, transfer_, source_}, false);
}

void Events::Flight::land() {
  if (events_ == nullptr) return;
  Events& events = *std::exchange(events_, nullptr);
  events.detail(transfer_, start_, events.now() - start_, source_);
}

}  // namespace psring
