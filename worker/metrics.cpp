#include <algorithm>
#include <chrono>
#include <cmath>
#include <utility>

#include <psring/common/base/system/run_delay.h>
#include <psring/common/base/text/error.h>
#include <psring/common/base/text/json.h>
#include <psring/worker/metrics.h>
#include <psring/worker/predict_job.h>
#include <psring/worker/training.h>

namespace psring::worker {

namespace {

constexpr Nanoseconds kBetweenLines = std::chrono::milliseconds(500);
constexpr Nanoseconds kLongEvaluation = std::chrono::seconds(2);  ///< shorter evaluations have no progress of their own

Json quantiles(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const auto at = [&](double q) {
    return values.empty() ? 0 : values[static_cast<std::size_t>(q * static_cast<double>(values.size() - 1))];
  };
  return {{"median", at(0.5)}, {"p10", at(0.1)}, {"p90", at(0.9)}};
}

/// A line of a later membership than the first says so.
std::string text_of(Json json, const Membership& member) {
  if (member.epoch() > 0) json["membership"] = member.epoch();
  return json.dump();
}

}  // namespace

MetricsWriter::MetricsWriter(const Run& run, Membership& member)
    : run_(run), member_(member), start_(member.clock().now()), flushed_(start_) {}

void Thinned::add(double value) {
  if (++passed_ < every_) return;
  passed_ = 0;
  values_.push_back(value);
  if (values_.size() < kMost) return;
  for (std::size_t i = 0; i < kMost / 2; ++i) values_[i] = values_[2 * i + 1];
  values_.resize(kMost / 2);
  every_ *= 2;
}

Nanoseconds MetricsWriter::communicated() const {
  return training_ != nullptr ? training_->communicated() : Nanoseconds{0};
}

void MetricsWriter::begin_step() {
  communicated_ = communicated();
  if (!began_)
    began_ = {.at = member_.clock().now(), .delay_s = run_delay_seconds(), .processor_s = processor_seconds()};
}

std::optional<double> MetricsWriter::run_delay() const {
  const std::optional<double> now = run_delay_seconds();
  if (!began_ || !began_->delay_s || !now) return std::nullopt;
  const double passed = seconds(member_.clock().now() - began_->at) * static_cast<double>(run_.threads);
  return passed > 0 ? std::optional(std::clamp((*now - *began_->delay_s) / passed, 0.0, 1.0)) : std::nullopt;
}

std::optional<double> MetricsWriter::processors_used() const {
  if (!began_) return std::nullopt;
  const double passed = seconds(member_.clock().now() - began_->at);
  return passed > 0 ? std::optional((processor_seconds() - began_->processor_s) / passed) : std::nullopt;
}

void MetricsWriter::on_step(const StepReport& report) {
  const Nanoseconds communicated = this->communicated();
  const std::uint64_t sent = member_.bytes().sent_bytes();
  const std::uint64_t received = member_.bytes().received_bytes();
  Json json = {{"step", report.step},
               {"epoch", report.epoch},
               {"worker", member_.rank()},
               {"time_s", seconds(member_.clock().now() - start_)},
               {"loss", report.samples == 0 ? Json() : Json(report.loss)},
               {"lr", run_.schedule->lr(run_.lr, report.step)},
               {"samples", report.samples},
               {"step_s", seconds(report.duration)},
               {"compute_s", seconds(report.duration - (communicated - communicated_))},
               {"comm_s", seconds(communicated - communicated_)},
               {"exposed_comm_s", seconds(report.exposed)},
               {"bytes_sent", sent - sent_},
               {"bytes_received", received - received_},
               {"staleness", report.staleness}};
  for (const OwnFigure& figure : report.own) json["own"][figure.name] = figure.value;
  sent_ = sent;
  received_ = received;
  communicated_ = communicated;
  if (steps_ == 0) {
    first_step_ = report.step;
    first_loss_ = report.loss;
  }
  last_loss_ = report.loss;
  last_samples_ = report.samples;
  ++steps_;
  samples_ += report.samples;
  training_time_ += report.duration;
  exposed_ += report.exposed;
  step_seconds_.add(seconds(report.duration));
  exposed_seconds_.add(seconds(report.exposed));
  if (member_.job().pipeline > 1) {
    json["bubble_s"] = seconds(report.bubble);
    if (report.duration.count() > 0) bubbles_.add(seconds(report.bubble) / seconds(report.duration));
  }
  busy_seconds_.add(seconds(report.duration - report.exposed));
  line(text_of(std::move(json), member_));
  if (const std::size_t every = member_.job().checkpoint_every; every != 0 && (report.step + 1) % every == 0) store();
}

/// A run that continues from a checkpoint does not repeat the earlier steps, so their lines are written before the
/// checkpoint.
void MetricsWriter::store() {
  flush();
  try {
    member_.link().flush(member_.clock().now() + std::chrono::seconds(1));
  } catch (const Error&) {  // the coordinator is out of reach; other code reports this loss
  }
}

void MetricsWriter::on_evaluation(const Evaluation& evaluation) {
  evaluation_ = evaluation;
  const auto rows = static_cast<double>(evaluation.rows);
  Json json{{"step", evaluation.step},
            {"worker", member_.rank()},
            {"time_s", seconds(member_.clock().now() - start_)},
            {"test_loss", evaluation.loss_sum / rows},
            {"test_rows", evaluation.rows}};
  if (run_.classes) {
    json["test_accuracy"] = static_cast<double>(evaluation.correct) / rows;
    json["test_correct"] = evaluation.correct;
  }
  for (const OwnFigure& sum : evaluation.own) json["own"]["test_" + sum.name] = sum.value / rows;
  if (run_.tokens_per_sample > 0) json["test_perplexity"] = std::exp(evaluation.loss_sum / rows);
  line(text_of(std::move(json), member_));
}

void MetricsWriter::line(std::string text) {
  lines_ += std::move(text) + "\n";
  if (member_.clock().now() - flushed_ < kBetweenLines) return;
  flush();
  tell_progress();
}

void MetricsWriter::tell_progress(std::optional<double> evaluated) {
  if (!run_.tells_progress) return;
  Json progress{{"step", first_step_ + steps_},
                {"made", steps_},
                {"steps", run_.steps},
                {"loss", last_loss_},
                {"samples", samples_},
                {"tokens", samples_ * run_.tokens_per_sample},
                {"seconds", seconds(training_time_)}};
  if (evaluated) progress["evaluated"] = *evaluated;
  member_.link().progress(progress.dump());
}

void MetricsWriter::evaluates(double share) {
  const Moment now = member_.clock().now();
  if (share == 0) evaluates_since_ = now;
  if (now - evaluates_since_ < kLongEvaluation || now - told_of_evaluation_ < kBetweenLines) return;
  told_of_evaluation_ = now;
  flush();
  tell_progress(share);
}

void MetricsWriter::flush() {
  flushed_ = member_.clock().now();
  member_.append("metrics.jsonl", lines_);
  lines_.clear();
}

std::string MetricsWriter::summary_json(const Prediction& prediction, std::uint64_t skipped_steps,
                                        const std::optional<GpuMemory>& gpu) const {
  Json predicted = Json::object();
  const auto predict = [&](const char* name, const std::optional<std::uint64_t>& bytes) {
    if (bytes) predicted[name] = *bytes;
  };
  predict("worker_sends", prediction.worker_sends);
  predict("worker_receives", prediction.worker_receives);
  if (prediction.run_sends > 0) predicted["worker_sends_of_run"] = prediction.run_sends;
  if (prediction.run_receives > 0) predicted["worker_receives_of_run"] = prediction.run_receives;
  if (prediction.run_server_receives > 0) predicted["server_receives_of_run"] = prediction.run_server_receives;
  if (prediction.run_server_sends > 0) predicted["server_sends_of_run"] = prediction.run_server_sends;
  if (prediction.run_own_server_receives > 0)
    predicted["own_server_receives_of_run"] = prediction.run_own_server_receives;
  if (prediction.run_own_server_sends > 0) predicted["own_server_sends_of_run"] = prediction.run_own_server_sends;
  predict("server_receives", prediction.server_receives);
  predict("server_sends", prediction.server_sends);
  predict("server_replicates", prediction.server_replicates);
  if (prediction.server_replicates && prediction.run_server_receives > 0)  // a follower gets all that its server gets
    predicted["server_replicates_of_run"] = prediction.run_server_receives;
  predict("own_server_receives", prediction.own_server_receives);
  predict("own_server_sends", prediction.own_server_sends);
  if (prediction.exposed_s) predicted["exposed_comm_s"] = *prediction.exposed_s;
  predicted["same_bits"] = prediction.same_bits;
  if (!prediction.worker_memory.empty()) predicted["worker_memory"] = to_json(prediction.worker_memory);
  if (!prediction.server_memory.empty()) predicted["server_memory"] = to_json(prediction.server_memory);
  for (const auto& memory : prediction.each_server_memory) predicted["each_server_memory"].push_back(to_json(memory));
  Json test{{"loss_sum", evaluation_.loss_sum}, {"rows", evaluation_.rows}};
  if (run_.classes) test["correct"] = evaluation_.correct;
  for (const OwnFigure& sum : evaluation_.own) test["own"][sum.name] = sum.value;
  Json json{{"predicted", predicted},
            {"steps", steps_},
            {"skipped_steps", skipped_steps},
            {"samples", samples_},
            {"seconds", seconds(training_time_)},
            {"exposed_comm_s", seconds(exposed_)},
            {"step_s", quantiles(step_seconds_.values())},
            {"exposed_step_s", quantiles(exposed_seconds_.values())},
            {"busy_step_s", quantiles(busy_seconds_.values())},
            {"first_loss", first_loss_},
            {"final_loss", last_loss_},
            {"final_samples", last_samples_},
            {"test", test}};
  if (!bubbles_.values().empty()) json["bubble"] = quantiles(bubbles_.values());
  if (run_.tokens_per_sample > 0) json["tokens_per_sample"] = run_.tokens_per_sample;
  if (const std::optional<double> delay = run_delay()) json["run_delay"] = *delay;
  if (const std::optional<double> used = processors_used()) json["processors_used"] = *used;
  if (const Json tables = training_->table_figures(); tables.size() > 0) json["tables"] = tables;
  if (gpu) {
    json["gpu"] = {{"name", gpu->name}, {"booked_peak", gpu->booked}};
    if (gpu->driver) json["gpu"]["driver"] = *gpu->driver;
  }
  return json.dump();
}

}  // namespace psring::worker
