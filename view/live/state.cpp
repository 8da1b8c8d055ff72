#include <algorithm>
#include <charconv>
#include <set>
#include <vector>

#include <fmt/format.h>

#include <psring/view/live/state.h>

namespace psring::view {
namespace {

constexpr std::size_t kMostKept = 16384;
constexpr const char* kRetransmitted = "retransmitted";

}  // namespace

void LiveLinks::update(const std::string& from, double time_s, const Json& sent) {
  known_ = true;
  const auto [time, is_first] = times_.try_emplace(from, time_s);
  const double passed = time_s - time->second;
  time->second = time_s;
  for (const Json& entry : sent) {
    const Key key(from, entry[1].get<std::string>(), entry[0].get<std::string>());
    if (links_.size() >= kMostKept && !links_.contains(key)) continue;
    Link& link = links_[key];
    const std::uint64_t before = link.bytes.total();
    link.messages.set(entry[2].get<std::uint64_t>());
    link.bytes.set(entry[3].get<std::uint64_t>());
    if (!is_first && passed > 0) link.bytes_per_second = static_cast<double>(link.bytes.total() - before) / passed;
  }
}

Json LiveLinks::json() const {
  if (!known_) return {};
  std::vector<const std::pair<const Key, Link>*> order;
  for (const auto& entry : links_) order.push_back(&entry);
  if (order.size() > kMost) {
    std::stable_sort(order.begin(), order.end(),
                     [](const auto* a, const auto* b) { return a->second.bytes.total() > b->second.bytes.total(); });
    order.resize(kMost);
  }
  Json list = Json::array();
  for (const auto* entry : order) {
    const auto& [from, to, operation] = entry->first;
    const Link& link = entry->second;
    list.push_back({{"from", from},
                    {"to", to},
                    {"operation", operation},
                    {"bytes", link.bytes.total()},
                    {"bytes_per_second", link.bytes_per_second},
                    {"retransmissions", operation == kRetransmitted ? Json(link.messages.total()) : Json()}});
  }
  return list;
}

namespace {

constexpr std::size_t kMostRecoveries = 100;
constexpr std::size_t kMostProcesses = 4096;

Json number_or_null(const Json& json, std::string_view key) {
  return json.contains(key) && json[key].is_number() ? json[key] : Json();
}

double number_of(const Json& json, std::string_view key) {
  const Json value = number_or_null(json, key);
  return value.is_null() ? 0 : value.get<double>();
}

/// Returns where the value of a key begins; npos without the key. A search for the quote before the key would stop at
/// every quote of the line; so the key's letters are searched.
std::size_t find_value(std::string_view line, std::string_view key) {
  for (std::size_t at = line.find(key); at != std::string_view::npos; at = line.find(key, at + 1))
    if (at > 0 && line[at - 1] == '"' && line.substr(at + key.size()).starts_with("\":")) return at + key.size() + 2;
  return std::string_view::npos;
}

/// The whole number after a key of a line that our own writer made; nothing if the key is not near the line's start.
std::optional<std::uint64_t> peek(std::string_view line, std::string_view key) {
  const std::size_t at = find_value(line.substr(0, 100), key);
  if (at == std::string_view::npos) return std::nullopt;
  std::uint64_t number = 0;
  return std::from_chars(line.data() + at, line.data() + line.size(), number).ec == std::errc{} ? std::optional(number)
                                                                                                : std::nullopt;
}

bool is_evaluation(std::string_view line) { return find_value(line, "test_rows") != std::string_view::npos; }

/// The membership of a line that our own writer made, which writes it last, and leaves out 0.
std::uint64_t peek_membership(std::string_view line) {
  const std::size_t at = line.rfind(',');
  return at == std::string_view::npos ? 0 : peek(line.substr(at), "membership").value_or(0);
}

std::string name_of(const char* role, std::uint32_t rank) { return fmt::format("{} {}", role, rank); }

/// Calls take(line) with a line that is a JSON object. A line that lacks a field, or has one of another type, is left
/// out.
template <class Take>
void parse_line(std::string_view text, const Take& take) {
  const std::optional<Json> json = Json::try_parse(text);
  if (!json || !json->is_object()) return;
  try {
    take(*json);
  } catch (const JsonError&) {  // another version's
  }
}

}  // namespace

void LiveState::set_run(const std::string& name, const Json& manifest, std::size_t tokens) {
  const Json& job = manifest.at("job");
  tokens_ = tokens;
  run_ = {{"name", name},
          {"command", manifest.contains("command") ? manifest["command"] : Json::array()},
          {"strategy", job.at("strategy")},
          {"model", job.at("model")},
          {"data", job.at("data")},
          {"workers", job.at("workers")},
          {"servers", job.at("servers")},
          {"steps", number_or_null(job, "steps")},
          {"global_batch", job.at("global_batch")},
          {"text_model", tokens > 0}};
  workers_wanted_ = std::min(job["workers"].get<std::size_t>(), kMostProcesses);
  mesh_ = {.tensor = job.value("tensor", std::size_t{1}), .pipeline = job.value("pipeline", std::size_t{1})};
  mesh_.data = workers_wanted_ / std::max<std::size_t>(1, mesh_.model_workers());
  if (mesh_.divides_model())
    run_["mesh"] = {{"data", mesh_.data}, {"tensor", mesh_.tensor}, {"pipeline", mesh_.pipeline}};
  else
    run_["mesh"] = Json();
}

void LiveState::add_metrics(std::span<const std::string_view> lines, Moment now) {
  std::set<std::size_t> firsts;  // lines that begin a worker's part in a membership
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const auto rank = peek(lines[i], "worker");
    if (!rank || is_evaluation(lines[i])) continue;
    const std::uint64_t membership = peek_membership(lines[i]);
    const auto [met, is_new] = met_.try_emplace(*rank % kMostProcesses, membership);
    if (is_new || std::exchange(met->second, membership) != membership) firsts.insert(i);
  }
  std::vector<const std::string_view*> wanted;
  std::set<std::uint64_t> seen;  // workers of which a newer line is wanted
  for (std::size_t i = lines.size(); i-- > 0;) {
    const auto step = peek(lines[i], "step");
    const auto rank = peek(lines[i], "worker");
    if (!step || !rank) continue;
    const bool is_newest = !is_evaluation(lines[i]) && seen.insert(*rank).second;
    if (is_evaluation(lines[i]) || is_newest || firsts.contains(i) || series_.wants(*step)) wanted.push_back(&lines[i]);
  }
  for (auto line = wanted.rbegin(); line != wanted.rend(); ++line) {
    if (const std::optional<StepLine> step = read_step_line(**line))
      add_step(*step, now);
    else if (is_evaluation(**line))
      parse_line(**line, [&](const Json& json) { add_evaluation(json); });
  }
}

LiveState::Worker& LiveState::worker_at(std::uint32_t rank, double time) {
  Worker& worker = workers_[rank % kMostProcesses];
  if (time < worker.raw_time_s) {  // another process
    worker.offset_s = time_s_;
    worker.begin_s.reset();
  }
  worker.raw_time_s = time;
  time_s_ = std::max(time_s_, time + worker.offset_s);
  return worker;
}

void LiveState::add_step(const StepLine& read, Moment now) {
  const bool is_known = workers_.contains(read.worker % kMostProcesses);
  Worker& worker = worker_at(read.worker, read.time_s);
  StepLine line = read;
  line.time_s += worker.offset_s;
  // After a recovery, or in the run's next part, steps may be made again: the first worker that goes back drops them.
  if (is_known && line.step <= worker.last.step && ++worker.returns > returns_) {
    returns_ = worker.returns;
    series_.drop_from(line.step);
    evaluations_.erase(evaluations_.upper_bound(line.step), evaluations_.end());
  }
  if (is_known && line.membership > worker.membership) worker.returns = std::max(worker.returns, returns_);
  if (!worker.begin_s || line.membership != worker.membership) worker.begin_s = line.time_s - line.step_s;
  worker.membership = line.membership;
  membership_ = std::max(membership_, line.membership);
  worker.last = line;
  processes_[name_of("worker", line.worker % kMostProcesses)].seen = now;
  series_.add(line);
}

void LiveState::add_evaluation(const Json& json) {
  const Worker& worker = worker_at(json.at("worker").get<std::uint32_t>(), json.at("time_s").get<double>());
  const auto step = json.at("step").get<std::uint64_t>();
  if (evaluations_.size() >= LiveSeries::kMost && !evaluations_.contains(step)) {
    bool drop = false;
    std::erase_if(evaluations_, [&](const auto&) { return std::exchange(drop, !drop); });
  }
  Evaluation& sum = evaluations_[step];
  const double rows = json.at("test_rows").get<double>();
  sum.time_s = std::max(sum.time_s, worker.raw_time_s + worker.offset_s);
  if (rows > 0) sum.loss += number_of(json, "test_loss") * rows;
  sum.rows += rows;
  if (json.contains("test_correct")) sum.correct = sum.correct.value_or(0) + number_of(json, "test_correct");
  sum.text = sum.text || json.contains("test_perplexity");
  if (json.contains("own"))
    for (const auto& [name, mean] : json["own"].items()) sum.own[name] += number_of(json["own"], name) * rows;
}

void LiveState::add_memory(std::string_view line, Moment now) {
  parse_line(line, [&](const Json& json) {
    const std::string name =
        fmt::format("{} {}", json.at("role").get<std::string>(), json.at("rank").get<std::uint32_t>());
    if (processes_.size() >= kMostProcesses && !processes_.contains(name)) return;
    Json memory = Json::object();
    for (const char* category : {"parameters", "gradients", "optimizer", "activations", "communication"})
      memory[category] = json.contains(category) ? number_or_null(json[category], "current") : Json();
    if (json.contains("index") && number_of(json["index"], "current") > 0) memory["index"] = json["index"]["current"];
    memory["rss"] = number_or_null(json, "rss");
    memory["pss"] = number_or_null(json, "pss");
    Process& process = processes_[name];
    process.memory = std::move(memory);
    process.seen = now;
  });
}

void LiveState::add_recovery(std::string_view line) {
  parse_line(line, [&](const Json& json) {
    if (json.contains("lost")) {
      recoveries_.push_back({{"time_s", time_s_}, {"what", json["lost"]}, {"step", Json()}, {"delay_s", Json()}});
      ++losses_;
      is_recovering_ = true;
      if (recoveries_.size() > kMostRecoveries) recoveries_.pop_front();
    } else if (json.contains("seconds")) {
      for (Json& recovery : recoveries_)
        if (recovery["step"].is_null()) {
          recovery["step"] = json.at("step");
          recovery["delay_s"] = json["seconds"];
        }
      is_recovering_ = false;
    }
    if (json.contains("workers")) workers_wanted_ = std::min(json["workers"].get<std::size_t>(), kMostProcesses);
  });
}

void LiveState::clear_recoveries() {
  recoveries_.clear();
  losses_ = 0;
  is_recovering_ = false;
}

void LiveState::add_status(std::string_view text, Moment now) {
  parse_line(text, [&](const Json& json) {
    const std::string name =
        fmt::format("{} {}", json.at("role").get<std::string>(), json.at("rank").get<std::uint32_t>());
    if (processes_.size() >= kMostProcesses && !processes_.contains(name)) return;
    const double time = json.at("time_s").get<double>();
    Process& process = processes_[name];
    if (process.status.is_object()) {
      const double passed = time - number_of(process.status, "time_s");
      const double worked = number_of(json, "busy_s") - number_of(process.status, "busy_s");
      if (passed > 0) process.busy = std::clamp(worked / passed, 0.0, 1.0);
    }
    links_.update(name, time, json.at("sent"));
    process.status = json;
    process.seen = now;
  });
}

}  // namespace psring::view
