#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <version.h>

#include <psring/cli/commands.h>
#include <psring/cli/options/job_flags.h>
#include <psring/cli/options/mesh_word.h>
#include <psring/cli/train/entries.h>
#include <psring/cli/train/launch_checks.h>
#include <psring/cli/train/set_up.h>
#include <psring/common/base/system/file.h>
#include <psring/common/base/system/standard_files.h>
#include <psring/common/base/text/error.h>
#include <psring/common/base/text/json.h>
#include <psring/view/page.h>
#include <psring/view/records.h>
#include <psring/view/step/play.h>
#include <psring/view/step/scene_text.h>

namespace psring::cli {
namespace {

constexpr int kSceneVersion = 1;
constexpr double kMostRate = 1e12;
constexpr const char* kLink = "1gbit,0.2ms";
constexpr const char* kSteps = "2";

struct StepFlags {
  options::Given job;
  std::vector<std::string> strategies{"ddp", "zero3"};
  double gflops = 1;
  double server_gbytes = 1;
  std::optional<std::uint32_t> kills;
  std::vector<std::string> scenes;
  std::string out = "scene.html";
  bool text = false;
  std::optional<Sweep> sweep;
};

/// The defaults of `psring step`: two steps over a slow link, so that the exchange is seen. With --kills the job goes
/// on after a loss.
void set_defaults(options::Given& given, bool linked, bool kills) {
  const auto device = given.find("device");
  if (linked && (device == given.end() || device->second == "cpu")) given.try_emplace("link", kLink);
  if (kills && !given.contains("min-workers")) given.try_emplace("max-restarts", "1");
  if (!given.contains("epochs")) given.try_emplace("steps", kSteps);
}

/// Does any of the strategies have several processes?
bool are_linked(const StepFlags& flags, const App& app) {
  return std::ranges::any_of(flags.strategies, [&](const std::string& text) {
    const std::string strategy = parse_mesh_word(text, flags.job).strategy;
    return !app.worker_registries().strategies.make(Spec::parse("--strategies", strategy))->one_worker;
  });
}

Json play_all(StepFlags& flags, const Invocation& invocation) {
  set_defaults(flags.job, are_linked(flags, invocation.app), flags.kills.has_value());
  Json scenes = Json::array();
  const view::JobNames names{invocation.app.worker_registries(), invocation.app.optimizers(),
                             invocation.app.aggregators()};
  const view::PlayOptions options{.flops_per_second = flags.gflops * 1e9,
                                  .server_bytes_per_second = flags.server_gbytes * 1e9,
                                  .kills = flags.kills};
  for (const Entry& entry : make_entries(flags.job, flags.strategies, *flags.sweep, invocation.app)) {
    view::check_playable(entry.job, options);
    worker::TrainSetup setup = set_up(entry.job, invocation.app);
    check_memory(setup, 1, 1);
    Json scene = view::play(entry.label, entry.job, *entry.kind, options, names);
    if (flags.text) out::print("{}", view::scene_text(scene));
    out::print("{}: {} events in {:.3f} ms of virtual time{}\n", entry.label, scene["events"].size(),
               scene["duration_ns"].get<double>() / 1e6,
               scene.contains("error") ? "; it failed: " + scene["error"].get<std::string>() : "");
    scenes.push_back(std::move(scene));
  }
  return scenes;
}

bool holds_scenes(const Json& document) {
  return document.contains("format") && document["format"] == Json("psring-scene") && document.contains("version") &&
         document["version"].is_number() && document["version"].get<int>() == kSceneVersion &&
         document.contains("scenes") && document["scenes"].is_array();
}

/// Returns the scenes of all files, one after the other.
Json read_scenes(const std::vector<std::string>& files) {
  Json scenes = Json::array();
  for (const std::string& file : files) {
    open_regular(file);  // throws if there is no such file
    const std::optional<Json> document = view::read_object(file);
    if (!document || !holds_scenes(*document))
      fail(ErrorKind::data, "{}: expected scenes of version {}, as psring step --out FILE.json writes them", file,
           kSceneVersion);
    for (const Json& scene : document->at("scenes")) scenes.push_back(scene);
  }
  return scenes;
}

/// Throws usage if other options would be ignored beside --scene.
void check_alone(const StepFlags& flags) {
  const StepFlags plain;
  std::string ignored = flags.job.empty() ? "" : "--" + flags.job.begin()->first;
  for (const auto& [given, name] : {std::pair(flags.strategies != plain.strategies, "--strategies"),
                                    {flags.gflops != plain.gflops, "--gflops"},
                                    {flags.server_gbytes != plain.server_gbytes, "--server-gbytes"},
                                    {flags.kills.has_value(), "--kills"},
                                    {flags.text, "--text"}})
    if (given) ignored = name;
  if (!ignored.empty()) fail(ErrorKind::usage, "{}: means nothing with --scene, which simulates nothing", ignored);
}

int step(StepFlags& flags, const Invocation& invocation) {
  for (const auto& [rate, name] : {std::pair(flags.gflops, "--gflops"), {flags.server_gbytes, "--server-gbytes"}})
    if (!(rate > 0 && rate <= kMostRate))
      fail(ErrorKind::usage, "{} {}: expected a rate above 0, up to 1e12", name, rate);
  if (!flags.scenes.empty()) check_alone(flags);
  Json document = {{"format", "psring-scene"},
                   {"version", kSceneVersion},
                   {"program", fmt::format("psring {} ({})", kVersion, kCommit)},
                   {"command", invocation.words},
                   {"scenes", flags.scenes.empty() ? play_all(flags, invocation) : read_scenes(flags.scenes)}};
  write_whole(flags.out, flags.out.ends_with(".json") ? document.dump() + "\n" : view::step_page(document));
  out::print("scene: {}\n", flags.out);
  return 0;
}

}  // namespace

Command add_step(const Flags& program) {
  const Flags command = program.add_command("step", "simulate a few steps, and show them event by event");
  auto flags = std::make_shared<StepFlags>();  // shared: the parser fills it in, the command reads it
  const Flag strategies =
      command.add("--strategies", flags->strategies, "strategies to show side by side, separated by commas")
          .separate_by(',')
          .show_default();
  command.add("--gflops", flags->gflops, "10^9 operations that a worker computes in a second").show_default();
  command
      .add("--server-gbytes", flags->server_gbytes,
           "10^9 bytes of gradients, parameters and optimizer state that a server works on in a second")
      .show_default();
  command.add("--kills", flags->kills,
              "also record the runs in which each worker and each server is killed at this step, one at a time");
  command.add("--scene", flags->scenes, "show the scenes of these JSON files, separated by commas; simulate nothing")
      .show_value("FILES")
      .separate_by(',');
  command.add("--out", flags->out, "file to write: a page, or JSON if the name ends in .json")
      .show_value("FILE")
      .show_default();
  command.add_switch("--text", flags->text, "print every event, too");
  add_job_flags(command, flags->job);
  for (const char* refused : {"--live", "--trace", "--events", "--tensorboard", "--checkpoint-every"})
    command.flag(refused).hide();  // view::check_playable
  command.flag("--link").show_default(kLink);
  command.flag("--steps").show_default(kSteps);
  command.flag("--epochs").show_default("");
  flags->sweep.emplace(command);
  command.add_footer("All processes run in this one, over a simulated network with a virtual clock.");
  return [flags, strategies](const Invocation& invocation) {
    if (strategies.text().empty())
      flags->strategies = defaults_for_tables(flags->strategies, flags->job, invocation.app);
    return step(*flags, invocation);
  };
}

}  // namespace psring::cli
