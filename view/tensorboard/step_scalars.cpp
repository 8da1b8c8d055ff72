#include <algorithm>
#include <cmath>
#include <utility>

#include <fmt/format.h>

#include <psring/common/base/text/json.h>
#include <psring/view/tensorboard/step_scalars.h>

namespace psring::view {
namespace {

constexpr std::string_view kTest = "test_";

/// A figure that a run may have written as null, because it was not finite or there were no samples.
double number_of(const Json& json, const char* key) {
  return json.at(key).is_number() ? json[key].get<double>() : std::nan("");
}

/// Calls take(object) with each line that is a JSON object. A line that lacks a field, or has a field of another type,
/// is left out.
template <class Take>
void for_each_object(std::string_view lines, const Take& take) {
  for (std::size_t end; (end = lines.find('\n')) != std::string_view::npos; lines.remove_prefix(end + 1)) {
    const std::optional<Json> json = Json::try_parse(lines.substr(0, end));
    if (!json || !json->is_object()) continue;
    try {
      take(*json);
    } catch (const JsonError&) {  // another version's
    }
  }
}

template <class Lines, class Value>
double sum_of(const Lines& lines, const Value& value) {
  double sum = 0;
  for (const auto& [worker, line] : lines) sum += value(line);
  return sum;
}

/// Returns the mean over all samples; NaN if there are none, or if the workers only sleep (--compute sleep).
template <class Lines>
double loss_of(const Lines& lines) {
  const double sum = sum_of(lines, [](const auto& line) { return line.samples > 0 ? line.loss * line.samples : 0; });
  return sum / sum_of(lines, [](const auto& line) { return line.samples; });
}

}  // namespace

void StepScalarsBuilder::add_metrics(std::string_view lines, double now) {
  struct Taken {
    std::uint32_t worker;
    Key key;
    std::uint64_t membership;
    double time_s;
    Line line;
  };
  std::vector<Taken> taken;
  std::map<std::uint32_t, double> last_s;
  for_each_object(lines, [&](const Json& json) {
    const bool training = json.contains("step_s");
    if (!training && !json.contains("test_rows")) return;
    Line line;
    if (training) {
      line = {.loss = number_of(json, "loss"),
              .samples = number_of(json, "samples"),
              .lr = number_of(json, "lr"),
              .epoch = number_of(json, "epoch"),
              .step_s = number_of(json, "step_s"),
              .compute_s = number_of(json, "compute_s"),
              .comm_s = number_of(json, "comm_s"),
              .exposed_s = number_of(json, "exposed_comm_s"),
              .bytes_sent = number_of(json, "bytes_sent"),
              .bytes_received = number_of(json, "bytes_received"),
              .staleness = number_of(json, "staleness")};
    } else {
      line = {.loss = number_of(json, "test_loss"), .samples = number_of(json, "test_rows")};
      if (json.contains("test_correct")) line.correct = number_of(json, "test_correct");
      line.text = json.contains("test_perplexity");
      if (json.contains("own"))
        for (const auto& [name, mean] : json["own"].items()) line.own[name] = number_of(json["own"], name.c_str());
    }
    const auto worker = json.at("worker").get<std::uint32_t>();
    taken.push_back({worker,
                     {json.at("step").get<std::uint64_t>(), training},
                     json.value("membership", std::uint64_t{0}),
                     json.at("time_s").get<double>(),
                     line});
    last_s[worker] = taken.back().time_s;
  });
  // A worker sends its lines as it records the last of them. The smallest distance tells best when the worker began.
  for (const auto& [worker, time_s] : last_s) {
    Beginning& beginning = beginnings_.try_emplace(worker, Beginning{.at = now - time_s}).first->second;
    const bool is_another_process = time_s < beginning.last_s;
    beginning = {.at = is_another_process ? now - time_s : std::min(beginning.at, now - time_s), .last_s = time_s};
  }
  for (Taken& one : taken) {
    one.line.wall_time = std::min(now, beginnings_[one.worker].at + one.time_s);
    add(one.worker, one.key, one.membership, one.line);
  }
}

void StepScalarsBuilder::add(std::uint32_t worker, Key key, std::uint64_t membership, const Line& line) {
  if (membership > membership_) enter_membership(membership, key, line.wall_time);
  const bool is_repeated = membership < membership_ && !own_steps_ && key >= restart_;
  if (is_repeated || key < next_) return;
  pending_[key][worker] = line;
  if (membership == membership_) positions_.try_emplace(worker, Position{key, key}).first->second.last = key;
}

/// After a loss, all workers continue with one step under bsp, which the first line of the new membership tells.
void StepScalarsBuilder::enter_membership(std::uint64_t membership, Key key, double now) {
  membership_ = membership;
  positions_.clear();
  if (own_steps_) return;
  restart_ = key;
  pending_.erase(pending_.lower_bound(key), pending_.end());
  if (key >= next_) return;
  next_ = key;
  mark_ = StepScalars{.step = key.step, .wall_time = now, .scalars = {}};
}

void StepScalarsBuilder::add_recoveries(std::string_view lines) {
  for_each_object(lines, [&](const Json& json) {
    if (json.contains("workers")) workers_ = json["workers"].get<std::size_t>();
  });
}

void StepScalarsBuilder::drop_first_steps() {
  Key first = next_;
  for (const auto& [worker, position] : positions_) first = std::max(first, position.first);
  pending_.erase(pending_.begin(), pending_.lower_bound(first));
  next_ = first;
}

std::uint64_t StepScalarsBuilder::first_step(std::uint64_t otherwise) const {
  return pending_.empty() ? otherwise : pending_.begin()->first.step;
}

std::vector<StepScalars> StepScalarsBuilder::take_complete() {
  if (positions_.size() < workers_ || positions_.empty()) return {};
  const auto before = [](const auto& a, const auto& b) { return a.second.last < b.second.last; };
  return take_until(std::min_element(positions_.begin(), positions_.end(), before)->second.last);
}

std::vector<StepScalars> StepScalarsBuilder::take_until(Key last) {
  std::vector<StepScalars> steps;
  while (!pending_.empty() && pending_.begin()->first <= last) {
    const auto& [key, lines] = *pending_.begin();
    if (mark_) steps.push_back(*std::exchange(mark_, std::nullopt));
    StepScalars& step = steps.emplace_back();
    step.step = key.step;
    for (const auto& [worker, line] : lines) step.wall_time = std::max(step.wall_time, line.wall_time);
    step.scalars = key.training ? training_scalars(lines, own_steps_) : evaluation_scalars(lines);
    next_ = key.training ? Key{key.step + 1, false} : Key{key.step, true};
    pending_.erase(pending_.begin());
  }
  return steps;
}

std::vector<Scalar> StepScalarsBuilder::training_scalars(const Lines& lines, bool own_steps) {
  const auto count = static_cast<double>(lines.size());
  const auto sum = [&](double Line::*field) { return sum_of(lines, [&](const Line& line) { return line.*field; }); };
  const Line& first = lines.begin()->second;
  std::vector<Scalar> scalars;
  if (const double loss = loss_of(lines); !std::isnan(loss)) scalars.push_back({"train/loss", loss});
  scalars.insert(scalars.end(), {{"train/lr", first.lr},
                                 {"train/epoch", first.epoch},
                                 {"time/step_s", sum(&Line::step_s) / count},
                                 {"time/compute_s", sum(&Line::compute_s) / count},
                                 {"time/comm_s", sum(&Line::comm_s) / count},
                                 {"time/exposed_s", sum(&Line::exposed_s) / count},
                                 {"bytes/sent", sum(&Line::bytes_sent)},
                                 {"bytes/received", sum(&Line::bytes_received)}});
  const auto rate = [](const Line& line) { return line.step_s > 0 ? line.samples / line.step_s : 0; };
  scalars.push_back({"throughput/samples_per_s", sum_of(lines, rate)});
  for (const auto& [worker, line] : lines)
    if (own_steps) scalars.push_back({fmt::format("staleness/worker_{}", worker), line.staleness});
  return scalars;
}

std::vector<Scalar> StepScalarsBuilder::evaluation_scalars(const Lines& lines) {
  const double loss = loss_of(lines);
  std::vector<Scalar> scalars{{"eval/loss", loss}};
  const Line& first = lines.begin()->second;
  const double rows = sum_of(lines, [](const Line& line) { return line.samples; });
  if (first.correct)
    scalars.push_back(
        {"eval/accuracy", sum_of(lines, [](const Line& line) { return line.correct.value_or(0); }) / rows});
  if (first.text) scalars.push_back({"eval/perplexity", std::exp(loss)});
  for (const auto& [name, mean] : first.own) {
    const auto total = [&](const Line& line) { return line.samples > 0 ? line.own.at(name) * line.samples : 0; };
    scalars.push_back({"eval/" + name.substr(kTest.size()), sum_of(lines, total) / rows});
  }
  return scalars;
}

}  // namespace psring::view
