#include <tuple>
#include <utility>

#include <psring/common/base/text/error.h>
#include <psring/common/base/text/json.h>
#include <psring/view/step/scene.h>
#include <psring/view/step/simulated_links.h>

namespace psring::view {
namespace {

using net::FrameType;

template <class... Bodies>
struct Overloaded : Bodies... {
  using Bodies::operator()...;
};
template <class... Bodies>
Overloaded(Bodies...) -> Overloaded<Bodies...>;

constexpr std::string_view kEvaluate = "evaluate";
/// Staging belongs to devices, which no simulated job has; the last category is shown only in scenes with tables.
constexpr Category kShown[] = {Category::parameters,  Category::gradients,     Category::optimizer,
                               Category::activations, Category::communication, Category::index};

/// Does the frame belong to the exchange, as the programs count it? Messages carry activations in a mesh, and
/// compressed gradients. All other frames are control, such as the samples that `dp` scatters.
bool is_exchange(const net::FrameHeader& header, bool messages_are_samples) {
  if ((header.flags & net::FrameHeader::kStartUp) != 0) return false;
  switch (header.type) {
    case FrameType::push:
    case FrameType::push_pull:
    case FrameType::values:
    case FrameType::all_reduce:
    case FrameType::reduce_scatter:
    case FrameType::all_gather:
    case FrameType::replicate:
    case FrameType::rows_pull:
    case FrameType::rows:
    case FrameType::rows_push:
      return true;
    case FrameType::message:
      return !messages_are_samples;
    default:
      return false;
  }
}

bool is_shown(const net::FrameHeader& header) {
  return header.type != FrameType::acknowledge && (header.flags & net::FrameHeader::kProbe) == 0;
}

bool is_of_rows(FrameType type) {
  return type == FrameType::rows_pull || type == FrameType::rows || type == FrameType::rows_push ||
         type == FrameType::rows_ack;
}

bool is_message(const WatchedCall& call) {
  return call.call.collective == ring::Collective::send || call.call.collective == ring::Collective::recv;
}

}  // namespace

/// The events of one process in one epoch.
class SceneRecorder::Process final : public EventListener {
 public:
  static constexpr std::size_t kAll = static_cast<std::size_t>(-1);
  /// Receiver of a message, or kAll; group; number.
  using CallKey = std::tuple<std::size_t, std::uint32_t, std::uint64_t>;
  struct Started {
    std::source_location source;
    std::optional<std::size_t> plan;
    bool shows_values = false;
  };

  Process(SceneRecorder& recorder, std::size_t place, net::Peer duty, const MemoryLedger& ledger)
      : memory(ledger), is_server(duty.role == net::Role::server), recorder_(recorder), place_(place) {}

  void on_begin(const Event& begun) override {
    if (const auto* activity = std::get_if<Activity>(&begun.what)) {
      if (activity->name == "step") recorder_.steps_[place_] = begun.step;
      if (std::exchange(evaluating_, evaluating_ || activity->name == kEvaluate)) return;
      describe(add(begun, begun.start, "begin", true), *activity);
    } else if (const auto* transfer = std::get_if<Transfer>(&begun.what)) {
      describe(add(begun, begun.start, "start", true), *transfer);
      started = begun.source;
      for (std::size_t unit = transfer->units.begin; unit < transfer->units.end; ++unit) units[unit] = begun.source;
    }
  }

  void on_event(const Event& event) override {
    const Moment end = event.start + event.duration;
    std::visit(Overloaded{[&](const Activity& what) {
                            evaluating_ = evaluating_ && what.name != kEvaluate;
                            // Aggregation and update end at the same moment as the activity around them.
                            if (last_activity.first != end || last_activity.second.line() == 0)
                              last_activity = {end, event.source};
                            if (!evaluating_) describe(add(event, end, "end"), what);
                          },
                          [&](const Transfer& what) {
                            Json& json = add(event, end, "finish");
                            describe(json, what);
                            const Json taken = std::exchange(result, Json::object());
                            for (const auto& [key, value] : taken.items()) json[key] = value;
                          },
                          [&](const Presence& what) {
                            Json& json = add(event, end, what.here ? "hold" : "drop", true);
                            json["values"] = what.values == Presence::Values::parameters ? "parameters" : "gradients";
                            json["unit"] = recorder_.shown(place_, what.unit);
                            json["bytes"] = what.bytes;
                          },
                          [&](const GradientReady& what) {
                            for (std::size_t unit = what.units.begin; unit < what.units.end; ++unit) {
                              Json& json = add(event, end, "gradient", true);
                              json["state"] = what.averaged ? "averaged" : "complete";
                              json["unit"] = recorder_.shown(place_, unit);
                            }
                          },
                          [&](const StepReport& what) {
                            Json& json = add(event, end, "report");
                            json["loss"] = what.loss;
                            json["samples"] = what.samples;
                            json["exposed_ns"] = what.exposed.count();
                          },
                          [](const auto&) {}},
               event.what);
  }

  static CallKey key_of(const WatchedCall& call) {
    return {is_message(call) ? call.members[call.call.root] : kAll, call.group, call.number};
  }

  const MemoryLedger& memory;
  const bool is_server;
  bool evaluates() const { return evaluating_; }

  std::map<CallKey, Started> calls;
  Json result = Json::object();                           ///< of the collective that finishes next
  std::source_location started;                           ///< the line of the last transfer
  std::map<std::size_t, std::source_location> units;      ///< the line of each unit's last transfer
  std::pair<Moment, std::source_location> last_activity;  ///< when it ended, and its line

 private:
  Json& add(const Event& event, Moment now, const char* kind, bool has_source = false) {
    Json& json = recorder_.add(place_, now, kind);
    json["step"] = event.step;
    if (has_source) recorder_.add_source(json, event.source);
    return json;
  }
  void describe(Json& json, const Activity& what) const {
    json["name"] = what.name;
    if (what.unit != kNone) json["unit"] = recorder_.shown(place_, what.unit);
    if (what.layer != kNone) json["layer"] = what.layer;
    if (!what.peer.empty()) json["peer"] = what.peer.text();
    if (what.bytes > 0) json["bytes"] = what.bytes;
  }
  void describe(Json& json, const Transfer& what) const {
    json["name"] = what.name;
    if (what.units.size() > 0)
      json["units"] = {recorder_.shown(place_, what.units.begin), recorder_.shown(place_, what.units.end - 1) + 1};
    json["bytes"] = what.bytes;
  }

  SceneRecorder& recorder_;
  const std::size_t place_;
  bool evaluating_ = false;  ///< the passes of an evaluation are left out
};

SceneRecorder::SceneRecorder(std::vector<std::size_t> hosts, SceneTables& tables)
    : tables_(tables),
      hosts_(std::move(hosts)),
      processes_(hosts_.size()),
      booked_(hosts_.size(), Booked{}),
      steps_(hosts_.size(), 0),
      sent_(hosts_.size()),
      predictions_(hosts_.size()),
      events_(std::make_unique<Json>(Json::array())) {}

SceneRecorder::~SceneRecorder() = default;

EventListener* SceneRecorder::joins(std::size_t place, net::Peer duty, const MemoryLedger& memory, Moment now) {
  processes_[place] = std::make_unique<Process>(*this, place, duty, memory);
  add(place, now, "join")["duty"] = net::to_string(duty);
  return processes_[place].get();
}

void SceneRecorder::leaves(std::size_t place) { processes_[place].reset(); }

void SceneRecorder::predicts(std::size_t place, const worker::Prediction& prediction) {
  predictions_[place] = prediction;
}

/// Calls that agree on a split are not reported: the last event is not that of their start.
void SceneRecorder::starts(std::size_t place, const WatchedCall& call, const ring::Request& request,
                           const ring::LinkOptions& options) {
  if (!processes_[place] || events_->size() == 0) return;
  Json& json = events_->back();
  if (json["e"].get<std::string>() != "start" || json["p"].get<std::size_t>() != place || json.contains("group") ||
      json["name"].get<std::string>() != to_string(call.call.collective))
    return;
  json["group"] = call.group;
  json["call"] = call.number;
  json["members"] = call.members;
  if (is_message(call)) json["to"] = call.members[call.call.root];
  Process& process = *processes_[place];
  Process::Started& started = process.calls[Process::key_of(call)];
  started.source = process.started;
  started.plan = tables_.plans.number(request, call.members.size(), options);
  started.shows_values = steps_[place] == 0;
  if (!started.plan) return;
  json["plan"] = *started.plan;
  if (started.shows_values) add_values(json, *started.plan, call, false);
}

void SceneRecorder::ends(std::size_t place, const WatchedCall& call) {
  if (!processes_[place]) return;
  const auto& calls = processes_[place]->calls;
  const auto started = calls.find(Process::key_of(call));
  if (started == calls.end()) return;
  Json& result = processes_[place]->result;
  result = {{"group", call.group}, {"call", call.number}};
  if (started->second.plan && started->second.shows_values) add_values(result, *started->second.plan, call, true);
}

void SceneRecorder::add_values(Json& event, std::size_t plan, const WatchedCall& call, bool after) const {
  if (Json values = tables_.plans.values(plan, call.rank, call.data, after); !values.is_null())
    event["values"] = std::move(values);
}

void SceneRecorder::add_source(Json& event, const std::source_location& source) {
  if (const auto number = tables_.sources.number(source)) event["source"] = *number;
}

/// Returns the line that a frame belongs to: that of its collective, of the worker's push or pull, or of the server's
/// work at this moment.
std::source_location SceneRecorder::source_of(std::size_t from, std::size_t to, const net::FrameHeader& header,
                                              Moment now) const {
  if (!processes_[from]) return {};
  const Process& process = *processes_[from];
  if (is_of_collective(header.type)) {
    const std::size_t receiver = header.type == FrameType::message ? to : Process::kAll;
    const auto call = process.calls.find({receiver, header.group, header.step});
    return call == process.calls.end() ? std::source_location() : call->second.source;
  }
  if (process.is_server)
    return process.last_activity.first == now ? process.last_activity.second : std::source_location();
  if (header.type != FrameType::pull && !is_exchange(header, messages_are_samples_)) return {};
  const auto unit = process.units.find(header.unit);
  return unit == process.units.end() ? std::source_location() : unit->second;
}

std::size_t SceneRecorder::shown(std::size_t place, std::size_t unit) const {
  return place < numbers_.size() && unit < numbers_[place].size() ? numbers_[place][unit] : unit;
}

void SceneRecorder::look_at_memory(std::size_t place, Moment now) {
  if (!processes_[place]) return;
  Booked booked{};
  const std::size_t shown = std::size(kShown) - (tables_begin_later_by_ ? 0 : 1);
  for (std::size_t i = 0; i < shown; ++i) booked[i] = processes_[place]->memory.current_bytes(kShown[i]);
  if (booked == booked_[place]) return;
  booked_[place] = booked;
  Json bytes = Json::array();
  for (std::size_t i = 0; i < shown; ++i) bytes.push_back(booked[i]);
  events_->push_back(
      {{"t", now.time_since_epoch().count()}, {"e", "memory"}, {"p", place}, {"bytes", std::move(bytes)}});
}

Json& SceneRecorder::add(std::size_t place, Moment now, const char* kind) {
  look_at_memory(place, now);
  events_->push_back({{"t", now.time_since_epoch().count()}, {"e", kind}, {"p", place}});
  return events_->back();
}

void SceneRecorder::on_send(std::size_t from, std::size_t to, const net::FrameHeader& header, Moment now,
                            Moment departs) {
  if (!is_shown(header)) return;
  const std::uint64_t number = frames_++;
  in_flight_[{from, to}][header.sequence] = number;
  Json& json = add(from, now, "send");
  json["frame"] = number;
  json["to"] = to;
  json["departs"] = departs.time_since_epoch().count();
  json["name"] = net::to_string(header.type);
  if (is_of_collective(header.type)) {
    json["group"] = header.group;
    json["call"] = header.step;
  } else {
    json["unit"] = header.unit + (is_of_rows(header.type) ? tables_begin_later_by_.value_or(0) : 0);
    json["of_step"] = header.step;
    json["version"] = header.version;
  }
  json["range"] = {header.begin, header.end};
  json["bytes"] = header.payload_bytes;
  const bool evaluates = processes_[from] && processes_[from]->evaluates();
  const bool counts = is_exchange(header, messages_are_samples_) && hosts_[from] != hosts_[to] && !evaluates;
  json["exchange"] = counts;
  add_source(json, source_of(from, to, header, now));
  if (!counts) return;
  if (sent_[from].size() <= steps_[from]) sent_[from].resize(steps_[from] + 1);
  sent_[from][steps_[from]] += header.payload_bytes;
}

void SceneRecorder::on_arrival(std::size_t from, std::size_t to, const net::FrameHeader& header, Moment now) {
  if (!is_shown(header)) return;
  auto& frames = in_flight_[{from, to}];
  const auto frame = frames.find(header.sequence);
  if (frame == frames.end()) return;  // a duplicate
  Json& json = add(to, now, "arrive");
  json["frame"] = frame->second;
  frames.erase(frame);
}

void SceneRecorder::on_death(std::size_t place, Moment now) { add(place, now, "die"); }
void SceneRecorder::on_return(std::size_t place, Moment now) { add(place, now, "return"); }

}  // namespace psring::view
