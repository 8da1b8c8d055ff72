#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <version.h>

#include <psring/cli/commands.h>
#include <psring/cli/entries.h>
#include <psring/cli/job_flags.h>
#include <psring/common/base/error.h>
#include <psring/common/base/file.h>
#include <psring/common/base/json.h>
#include <psring/view/page.h>
#include <psring/view/step/play.h>
#include <psring/view/step/scene_text.h>

namespace psring::cli {
namespace {

struct StepFlags {
  options::Given job;
  std::vector<std::string> strategies{"ddp", "zero3"};
  double gflops = 1;
  std::string out = "scene.html";
  bool text = false;
  std::optional<Sweep> sweep;
};

/// The defaults of `psring step`: two steps over a slow link, so that the exchange is seen.
void set_defaults(options::Given& given) {
  given.try_emplace("link", "1gbit,0.2ms");
  if (!given.contains("epochs")) given.try_emplace("steps", "2");
}

Json play_all(StepFlags& flags, const Invocation& invocation) {
  Json scenes = Json::array();
  const view::JobNames names{invocation.app.worker_registries(), invocation.app.optimizers(),
                             invocation.app.aggregators()};
  for (const Entry& entry : make_entries(flags.job, flags.strategies, *flags.sweep, invocation.app)) {
    view::check_playable(entry.job);
    Json scene = view::play(entry.label, entry.job, *entry.kind, flags.gflops * 1e9, names);
    if (flags.text) fmt::print("{}", view::scene_text(scene));
    fmt::print("{}: {} events in {:.3f} ms of virtual time{}\n", entry.label, scene["events"].size(),
               scene["duration_ns"].get<double>() / 1e6,
               scene.contains("error") ? "; it failed: " + scene["error"].get<std::string>() : "");
    scenes.push_back(std::move(scene));
  }
  return scenes;
}

int step(StepFlags& flags, const Invocation& invocation) {
  if (!(flags.gflops > 0)) fail(ErrorKind::usage, "--gflops {}: expected a rate above 0", flags.gflops);
  set_defaults(flags.job);
  Json document = {{"format", "psring-scene"},
                   {"version", 1},
                   {"program", fmt::format("psring {} ({})", kVersion, kCommit)},
                   {"command", invocation.words},
                   {"scenes", play_all(flags, invocation)}};
  write_whole(flags.out, flags.out.ends_with(".json") ? document.dump() + "\n" : view::step_page(document));
  fmt::print("scene: {}\n", flags.out);
  return 0;
}

}  // namespace

Command add_step(const Flags& program) {
  const Flags command = program.add_command("step", "simulate a few steps, and show them event by event");
  auto flags = std::make_shared<StepFlags>();  // shared: the parser fills it in, the command reads it
  command.add("--strategies", flags->strategies, "strategies to show side by side, separated by commas")
      .separate_by(',')
      .show_default();
  command.add("--gflops", flags->gflops, "10^9 operations that a worker computes in a second").show_default();
  command.add("--out", flags->out, "file to write: a page, or JSON if the name ends in .json").show_default();
  command.add_switch("--text", flags->text, "print every event, too");
  add_job_flags(command, flags->job);
  flags->sweep.emplace(command);
  command.add_footer("All processes run in this one, over a simulated network with a virtual clock.");
  return [flags](const Invocation& invocation) { return step(*flags, invocation); };
}

}  // namespace psring::cli
