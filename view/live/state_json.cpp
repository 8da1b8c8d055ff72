#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include <psring/view/live/state.h>

namespace psring::view {
namespace {

constexpr double kRateWindow_s = 10;
constexpr double kFlush_s = 1;  ///< the longest time until a line is written, and then read here

std::string name_of(const char* role, std::uint32_t rank) { return fmt::format("{} {}", role, rank); }

Json field_or_null(const Json& json, const char* key) { return json.contains(key) ? json[key] : Json(); }

/// The number of steps that a worker had made at a time, reckoned from its last step, which ended at `end_s`.
std::uint64_t steps_at(const StepLine& last, double end_s, double time_s) {
  const double later = last.step_s > 0 ? std::max(0.0, end_s - time_s) / last.step_s : 0;
  return later > static_cast<double>(last.step) ? 0 : last.step + 1 - static_cast<std::uint64_t>(std::llround(later));
}

Json if_positive(double value) { return value > 0 ? Json(value) : Json(); }

}  // namespace

std::string LiveState::json(Moment now) const {
  std::string text = figures(now).dump_any_bytes();
  text.pop_back();
  return text + ",\"series\":" + series_.json() + "}";
}

Json LiveState::figures(Moment now) const {
  Json workers = Json::array();
  const Front reached = front();
  for (std::uint32_t rank = 0; rank < workers_wanted_; ++rank) workers.push_back(worker(rank, now, reached));
  Json servers = Json::array();
  const auto wanted = run_.contains("servers") ? run_["servers"].get<std::uint32_t>() : 0;
  for (std::uint32_t rank = 0; rank < 4096 && (rank < wanted || processes_.contains(name_of("server", rank))); ++rank)
    servers.push_back(server(rank, now));
  return {{"schema", 1},
          {"run", run_},
          {"phase", phase()},
          {"error", end_ && !end_->empty() ? Json(*end_) : Json()},
          {"time_s", time_s_},
          {"progress", progress()},
          {"evaluations", evaluations()},
          {"workers", std::move(workers)},
          {"servers", std::move(servers)},
          {"links", links_.json()},
          {"recoveries", std::vector<Json>(recoveries_.begin(), recoveries_.end())},
          {"losses", losses_}};
}

std::string LiveState::phase() const {
  if (end_) return end_->empty() ? "done" : "failed";
  if (is_recovering_) return "recovering";
  return workers_.empty() ? "starting" : "training";
}

/// Workers of an earlier membership may have gone.
bool LiveState::is_member(std::uint32_t rank, const Worker& worker) const {
  return rank < workers_wanted_ && worker.membership == membership_;
}

/// Steps that the slowest worker has made.
std::uint64_t LiveState::slowest() const {
  std::uint64_t least = UINT64_MAX;
  for (const auto& [rank, worker] : workers_)
    if (is_member(rank, worker)) least = std::min(least, worker.last.step + 1);
  return least == UINT64_MAX ? 0 : least;
}

/// Lines of different workers are not equally new, so workers are compared at the time of the oldest line. A worker
/// that has written no line for longer than kFlush_s has made no step since.
LiveState::Front LiveState::front() const {
  Front front{.time_s = 0, .steps = UINT64_MAX};
  double oldest = HUGE_VAL;
  double newest = 0;
  for (const auto& [rank, worker] : workers_)
    if (is_member(rank, worker)) {
      oldest = std::min(oldest, worker.end_s());
      newest = std::max(newest, worker.end_s());
    }
  front.time_s = std::max(oldest, newest - kFlush_s);
  for (const auto& [rank, worker] : workers_)
    if (is_member(rank, worker))
      front.steps = std::min(front.steps, steps_at(worker.last, worker.end_s(), front.time_s));
  return front;
}

Json LiveState::progress() const {
  const std::uint64_t step = slowest();
  double loss = 0;
  double samples = 0;
  for (const auto& [rank, worker] : workers_) {
    if (rank >= workers_wanted_ || !worker.last.loss) continue;
    loss += *worker.last.loss * worker.last.samples;
    samples += worker.last.samples;
  }
  const double rate = series_.samples_per_second(kRateWindow_s);
  const double steps_rate = series_.steps_per_second(kRateWindow_s);
  const Json steps = run_.contains("steps") ? run_["steps"] : Json();
  Json left;
  if (end_)
    left = end_->empty() ? Json(0.0) : Json();
  else if (!steps.is_null() && steps_rate > 0)
    left = (steps.get<double>() - std::min(steps.get<double>(), static_cast<double>(step))) / steps_rate;
  return {{"step", step},
          {"steps", steps},
          {"samples_per_second", if_positive(rate)},
          {"tokens_per_second", tokens_ > 0 ? if_positive(rate * static_cast<double>(tokens_)) : Json()},
          {"left_s", left},
          {"loss", samples > 0 ? Json(loss / samples) : Json()}};
}

Json LiveState::evaluations() const {
  Json list = Json::array();
  for (const auto& [step, sum] : evaluations_) {
    if (sum.rows == 0) continue;
    Json own = Json::object();
    for (const auto& [name, total] : sum.own) own[name] = total / sum.rows;
    list.push_back({{"step", step},
                    {"time_s", sum.time_s},
                    {"test_loss", sum.loss / sum.rows},
                    {"test_accuracy", sum.correct ? Json(*sum.correct / sum.rows) : Json()},
                    {"test_perplexity", sum.text ? Json(std::exp(sum.loss / sum.rows)) : Json()},
                    {"own", std::move(own)}});
  }
  return list;
}

Json LiveState::worker(std::uint32_t rank, Moment now, const Front& front) const {
  Json json;
  json["rank"] = rank;
  const auto found = workers_.find(rank);
  const bool known = found != workers_.end();
  const StepLine line = known ? found->second.last : StepLine();
  if (mesh_.divides_model())
    json["place"] = {
        {"data", mesh_.data_rank({rank}).value}, {"tensor", mesh_.tensor_rank({rank})}, {"stage", mesh_.stage({rank})}};
  else
    json["place"] = Json();
  json["step"] = known ? Json(line.step + 1) : Json();
  json["loss"] = known && found->second.last.loss ? Json(*found->second.last.loss) : Json();
  for (const auto& [name, value] : {std::pair{"step_s", line.step_s},
                                    {"compute_s", line.compute_s},
                                    {"exposed_s", line.exposed_s},
                                    {"staleness", line.staleness}})
    json[name] = known ? Json(value) : Json();
  json["bubble_s"] = known && mesh_.pipeline > 1 ? Json(line.bubble_s) : Json();
  const std::uint64_t made = steps_at(line, known ? found->second.end_s() : 0, front.time_s);
  json["lag"] = known ? Json(made - std::min(made, front.steps)) : Json();
  add_process(json, name_of("worker", rank), now);
  return json;
}

Json LiveState::server(std::uint32_t rank, Moment now) const {
  Json json;
  json["rank"] = rank;
  const std::string name = name_of("server", rank);
  add_process(json, name, now);
  const auto found = processes_.find(name);
  const bool known = found != processes_.end();
  json["busy"] = known && found->second.busy && !end_ ? Json(*found->second.busy) : Json();
  for (const char* key : {"updates", "rows"}) json[key] = known ? field_or_null(found->second.status, key) : Json();
  return json;
}

void LiveState::add_process(Json& json, const std::string& name, Moment now) const {
  static const Process kUnknown;
  const auto found = processes_.find(name);
  const Process& process = found == processes_.end() ? kUnknown : found->second;
  json["seen_s"] = process.seen && !end_ ? Json(seconds(now - *process.seen)) : Json();
  json["waiting"] = waiting(process, now);
  json["memory"] = process.memory;
  for (const char* key : {"bytes_sent", "bytes_received", "samples", "training_s", "waited_s"})
    json[key] = field_or_null(process.status, key);
}

Json LiveState::waiting(const Process& process, Moment now) const {
  Json json = field_or_null(process.status, "waiting");
  if (!json.is_object() || end_) return {};
  json["since_s"] = json.value("since_s", 0.0) + seconds(now - *process.seen);
  return json;
}

}  // namespace psring::view
