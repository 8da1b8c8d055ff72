#include <psring/common/base/events.h>

namespace psring {

void ReportListener::on_event(const Event& event) {
  if (const auto* step = std::get_if<StepReport>(&event.what)) on_step(*step);
  if (const auto* evaluation = std::get_if<Evaluation>(&event.what)) on_evaluation(*evaluation);
}

void Events::listen(EventListener& listener, Wanted wanted) {
  listeners_.emplace_back(&listener, wanted);
  active_ = active_ || wanted >= Wanted::activities;
  detailed_ = detailed_ || wanted >= Wanted::details;
  begins_ = begins_ || wanted == Wanted::activities || wanted == Wanted::begins;
}

void Events::emit(const Event& event, Wanted kind) {
  for (const auto& [listener, wanted] : listeners_)
    if (wanted >= kind) listener->on_event(event);
}

void Events::begin(const Event& event) {
  const bool active = std::holds_alternative<Activity>(event.what);
  for (const auto& [listener, wanted] : listeners_)
    if (wanted == Wanted::begins || (wanted == Wanted::activities && active)) listener->on_begin(event);
}

void Events::report(const StepReport& report) {
  emit({now() - report.duration, report.duration, report.step, report}, Wanted::reports);
}

void Events::report(const Evaluation& evaluation) {
  emit({now(), Nanoseconds{0}, evaluation.step, evaluation}, Wanted::reports);
}

void Events::Span::begin(const Activity& activity, std::uint64_t step, Source source) {
  activity_ = activity;
  step_ = step;
  source_ = source;
  start_ = events_.now();
  if (events_.begins_) events_.begin({start_, Nanoseconds{0}, step_, activity_, source_});
}

void Events::Span::end() {
  events_.emit({start_, events_.now() - start_, step_, activity_, source_}, Wanted::activities);
}

Events::Flight::Flight(Events& events, const Transfer& transfer, Source source) {
  if (!events.detailed()) return;
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
  events.detail(transfer_, start_, events.now() - start_, source_);
}

}  // namespace psring
