#include <algorithm>
#include <filesystem>
#include <map>
#include <numeric>
#include <utility>
#include <vector>

#include <sodium.h>

#include <psring/common/base/system/file.h>
#include <psring/common/base/text/error.h>
#include <psring/common/base/text/json.h>
#include <psring/common/base/text/spec.h>
#include <psring/common/net/link_shaping.h>
#include <psring/common/proc/fault.h>
#include <psring/common/proc/guarded_folder.h>
#include <psring/view/ownership.h>
#include <psring/view/step/play.h>
#include <psring/view/step/scene.h>
#include <psring/worker/predict_job.h>
#include <psring/worker/train_setup.h>

namespace psring::view {
namespace {

namespace fs = std::filesystem;

constexpr Nanoseconds kRestartTime = std::chrono::milliseconds(5);
constexpr SimulatedControl::Delays kDelays{.message = std::chrono::microseconds(100),
                                           .notice = std::chrono::milliseconds(1)};

/// Returns the SHA-256 of a file in hexadecimal; "" if the file does not exist.
std::string sha256_of(const fs::path& file) {
  const std::optional<std::string> bytes = read_whole_if_present(file);
  if (!bytes) return "";
  unsigned char hash[crypto_hash_sha256_BYTES];
  crypto_hash_sha256(hash, reinterpret_cast<const unsigned char*>(bytes->data()), bytes->size());
  std::string text;
  for (const unsigned char byte : hash) text += fmt::format("{:02x}", byte);
  return text;
}

Json units_of(const worker::TrainSetup& setup) {
  const Layout& layout = setup.layout();
  Json units = Json::array();
  for (worker::UnitId unit = 0; unit < layout.units.size(); ++unit) {
    Json layers = Json::array();
    for (const std::size_t layer : setup.flat().layers_of(unit)) layers.push_back(layer);
    units.push_back({{"name", layout.units[unit].name},
                     {"elements", layout.units[unit].elements},
                     {"parameter_bytes", layout.parameter_bytes(unit)},
                     {"gradient_bytes", layout.gradient_bytes(unit)},
                     {"trained", layout.units[unit].trained},
                     {"layers", std::move(layers)}});
  }
  for (const TableLayout& table : layout.tables)
    units.push_back({{"name", table.name}, {"table", true}, {"width", table.width}, {"trained", true}});
  return units;
}

/// The units of each worker of a mesh, by place, as numbers in the list of the whole model's units; empty without a
/// mesh.
std::vector<std::vector<std::size_t>> unit_numbers(const JobOptions& job, const JobNames& names) {
  if (!job.mesh().divides_model()) return {};
  worker::TrainSetup setup(job, names.workers, names.optimizers);
  std::map<std::string, std::size_t> whole;
  for (std::size_t unit = 0; unit < setup.flat().units(); ++unit) whole[setup.flat().name(unit)] = unit;
  std::vector<std::vector<std::size_t>> numbers(job.workers);
  for (std::size_t rank = 0; rank < job.workers; ++rank) {
    setup.become(JobRank{rank});
    for (std::size_t unit = 0; unit < setup.flat().units(); ++unit)
      numbers[rank].push_back(whole.at(setup.flat().name(unit)));
    setup.become(std::nullopt);
  }
  return numbers;
}

/// Predicted bytes of a step, and of the whole scene on top of its steps', and booked bytes; a value that is missing is
/// left out.
Json prediction_of(const worker::Prediction& prediction, bool has_tables) {
  Json json = Json::object();
  const auto add = [&](const char* name, const auto& value) {
    if (value) json[name] = *value;
  };
  add("worker_sends", prediction.worker_sends);
  const std::uint64_t of_run = has_tables ? prediction.run_sends : prediction.larger_batches_send;
  if (of_run > 0) json["worker_sends_of_run"] = of_run;
  if (has_tables && prediction.run_server_sends > 0) json["servers_send_of_run"] = prediction.run_server_sends;
  add("worker_receives", prediction.worker_receives);
  add("servers_send", prediction.server_sends);
  add("servers_receive", prediction.server_receives);
  add("servers_replicate", prediction.server_replicates);
  add("exposed_s", prediction.exposed_s);
  json["worker_memory"] = worker::to_json(prediction.worker_memory);
  json["server_memory"] = worker::to_json(prediction.server_memory);
  for (const auto& memory : prediction.each_server_memory)
    json["each_server_memory"].push_back(worker::to_json(memory));
  return json;
}

/// Returns the process that each role lives in: its own, or for a colocated server its worker's.
std::vector<std::size_t> hosts_of(const JobOptions& job) {
  const std::vector<net::Peer> places = peers_of(job);
  std::vector<std::size_t> hosts(places.size());
  std::iota(hosts.begin(), hosts.end(), std::size_t{0});
  for (std::size_t worker = 0; worker < job.workers; ++worker)
    if (const auto server = job.server_in(worker)) hosts[job.workers + *server] = worker;
  return hosts;
}

/// `units`: unit_numbers of the job.
Json processes_of(const std::vector<net::Peer>& places, const SceneRecorder& recorder,
                  const std::vector<std::vector<std::size_t>>& units, bool has_tables) {
  Json processes = Json::array();
  for (std::size_t place = 0; place + 1 < places.size(); ++place) {  // without the coordinator
    Json process = {{"name", net::to_string(places[place])},
                    {"role", net::to_string(places[place].role)},
                    {"rank", places[place].rank},
                    {"sent", recorder.sent()[place]}};
    if (const auto& prediction = recorder.predictions()[place])
      process["predicted"] = prediction_of(*prediction, has_tables);
    if (place < units.size()) process["units"] = units[place];
    processes.push_back(std::move(process));
  }
  return processes;
}

/// A job that was played.
struct Recording {
  Recording(const JobOptions& job, const PlayOptions& options, const JobNames& names, SceneTables& tables)
      : hosts(hosts_of(job)), recorder(hosts, tables) {
    recorder.number_units(unit_numbers(job, names));
    if (names.workers.strategies.make(Spec::parse("--strategy", job.strategy))->scatters) recorder.leave_out_messages();
    const worker::TrainSetup setup(job, names.workers, names.optimizers);
    if (!setup.layout().tables.empty())
      recorder.show_tables(setup.layout().units.size() - setup.served_layout().units.size());
    const GuardedFolder folder("psring-step");
    SimulatedJobOptions simulated;
    simulated.job = job;
    simulated.network.processes = hosts;
    if (!job.link.empty()) simulated.network.link = net::parse_link(job.link);  // one process has none
    simulated.network.seed = job.seed;
    simulated.network.listener = &recorder;
    simulated.network.deaths = deaths_of(job);
    simulated.delays = kDelays;
    simulated.restart_time = kRestartTime;
    simulated.model = folder.path() / "model.safetensors";
    simulated.flops_per_second = options.flops_per_second;
    simulated.server_bytes_per_second = options.server_bytes_per_second;
    simulated.listener = &recorder;
    try {
      simulate(simulated, names);
    } catch (const Error& failure) {
      error = failure.what();
    }
    model_sha256 = sha256_of(simulated.model);
  }

  Json duration() const { return recorder.events().size() == 0 ? Json(0) : recorder.events().back()["t"]; }

  const std::vector<std::size_t> hosts;
  SceneRecorder recorder;
  std::string error;  ///< ""; the job ended well
  std::string model_sha256;

 private:
  static std::vector<net::SimulatedNetwork::Death> deaths_of(const JobOptions& job) {
    std::vector<net::SimulatedNetwork::Death> deaths;
    const std::vector<net::Peer> places = peers_of(job);
    for (std::size_t place = 0; place < places.size(); ++place)
      for (const Fault& fault : faults_of(job.fault, places[place]))
        if (fault.kind == Fault::Kind::kill && !fault.step)
          deaths.push_back({.place = place, .at = fault.after, .returns_after = kRestartTime});
    return deaths;
  }
};

/// Returns what a run has that the undisturbed one has not: the events from the first that differs.
Json run_of(const Recording& run, const Recording& undisturbed, std::size_t place, std::uint64_t step) {
  const Json& events = run.recorder.events();
  const Json& others = undisturbed.recorder.events();
  std::size_t common = 0;
  while (common < std::min(events.size(), others.size()) && events[common] == others[common]) ++common;
  Json left = Json::array();
  for (std::size_t i = common; i < events.size(); ++i) left.push_back(events[i]);
  Json json = {{"process", place},
               {"step", step},
               {"events_in_common", common},
               {"duration_ns", run.duration()},
               {"model_sha256", run.model_sha256}};
  if (!run.error.empty()) json["error"] = run.error;
  json["sent"] = run.recorder.sent();
  json["events"] = std::move(left);
  return json;
}

/// Plays the job once more for each worker and server, which is killed when it begins the step.
Json play_kills(const JobOptions& job, std::uint64_t step, const Recording& undisturbed, const PlayOptions& options,
                const JobNames& names, SceneTables& tables) {
  Json runs = Json::object();
  const std::vector<net::Peer> places = peers_of(job);
  for (std::size_t place = 0; place < job.workers + job.servers; ++place) {
    JobOptions killed = job;
    const net::Peer victim = places[place];
    killed.fault += fmt::format("{}kill:{}:{}@step={}", job.fault.empty() ? "" : " ", net::to_string(victim.role),
                                victim.rank, step);
    const Recording run(killed, options, names, tables);
    runs["kill " + net::to_string(victim)] = run_of(run, undisturbed, place, step);
  }
  return runs;
}

}  // namespace

void check_playable(const JobOptions& job, const PlayOptions& options) {
  const auto refuse = [&](bool is_set, const char* option) {
    if (is_set) fail(ErrorKind::usage, "{}: psring step cannot simulate it; use psring train", option);
  };
  refuse(job.device != "cpu" || job.server_device != "cpu", "--device cuda");
  refuse(job.transport == "shm", "--transport shm");
  refuse(job.local_reduce, "--local-reduce");
  refuse(job.mesh().divides_model() && job.servers > 0, "--servers in a mesh");
  refuse(job.share_host_parameters, "--share-host-parameters");
  refuse(job.shard_group == "host", "--shard-group host");
  refuse(job.encrypt, "--encrypt on");
  refuse(job.checkpoint_every > 0, "--checkpoint-every");
  refuse(job.events, "--events");
  refuse(job.trace, "--trace");
  refuse(!job.live.empty(), "--live");
  refuse(job.tensorboard, "--tensorboard");
  refuse(options.kills && job.colocated_servers() > 0, "--kills with two roles in a process");
  for (const Fault& fault : parse_faults(job.fault)) {
    const bool paces = fault.kind == Fault::Kind::slow || fault.kind == Fault::Kind::jitter;
    const bool kills = fault.kind == Fault::Kind::kill && fault.role != net::Role::coordinator;
    refuse(!paces && !kills, "--fault other than slow, jitter and kill");
    refuse(kills && job.colocated_servers() > 0, "--fault kill of a process with two roles");
  }
}

Json play(const std::string& label, const JobOptions& job, const worker::StrategyKind& kind, const PlayOptions& options,
          const JobNames& names) {
  const worker::TrainSetup setup(job, names.workers, names.optimizers);
  if (options.kills && *options.kills >= setup.steps())
    fail(ErrorKind::usage, "--kills {}: the last step is {}", *options.kills, setup.steps() - 1);
  SceneTables tables;
  const Recording undisturbed(job, options, names, tables);
  Json scene = {{"label", label}, {"strategy", job.strategy}, {"job", Json::parse(to_json(job))}};
  if (!undisturbed.error.empty()) scene["error"] = undisturbed.error;
  scene["model"] = setup.model().name;
  scene["link"] = job.link;
  scene["flops_per_second"] = options.flops_per_second;
  scene["server_bytes_per_second"] = options.server_bytes_per_second;
  scene["steps"] = setup.steps();
  scene["model_sha256"] = undisturbed.model_sha256;
  scene["ownership"] = ownership(kind, scene["job"], std::nullopt, setup.layout().weights);
  scene["units"] = units_of(setup);
  scene["processes"] =
      processes_of(peers_of(job), undisturbed.recorder, unit_numbers(job, names), !setup.layout().tables.empty());
  scene["events"] = undisturbed.recorder.events();
  scene["duration_ns"] = undisturbed.duration();
  if (options.kills) scene["runs"] = play_kills(job, *options.kills, undisturbed, options, names, tables);
  scene["sources"] = tables.sources.list();
  scene["plans"] = tables.plans.list();
  return scene;
}

}  // namespace psring::view
