#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include <psring/cli/check/jobs.h>
#include <psring/cli/options/resolve.h>
#include <psring/cli/train/job_memory.h>
#include <psring/cli/train/set_up.h>
#include <psring/common/base/text/error.h>
#include <psring/view/step/play.h>

namespace psring::cli {

Entry exercise_job(const App& app, const std::string& strategy, options::Given given) {
  given.try_emplace("workers", "4");
  given.try_emplace("data", "synthetic");
  given.try_emplace("steps", "1");
  const std::shared_ptr<const worker::StrategyKind> kind =
      app.worker_registries().strategies.make(Spec::parse("--strategies", strategy));
  LeftOut left_out;
  Entry entry{strategy, resolve(given, strategy, *kind, &left_out, true), kind};
  set_up(entry.job, app);
  return entry;
}

exercise::MemoryBytes booked_bytes(const App& app, const std::string& strategy, options::Given given) {
  given["model"] = kBookedModel;
  std::map<Category, std::uint64_t> booked = job_memory(exercise_job(app, strategy, given).job, 1, app).worker;
  return {booked[Category::parameters], booked[Category::gradients], booked[Category::optimizer]};
}

Json play_exercise(const App& app, const std::string& strategy, const options::Given& given) {
  constexpr view::PlayOptions kFast{.flops_per_second = 1e15, .server_bytes_per_second = 1e15};
  options::Given linked = given;
  linked.try_emplace("link", "1gbit,0.2ms");  // the default of psring step
  const Entry entry = exercise_job(app, strategy, linked);
  return view::play(entry.label, entry.job, *entry.kind, kFast,
                    {app.worker_registries(), app.optimizers(), app.aggregators()});
}

double step_seconds(const App& app, const std::string& strategy, options::Given given) {
  constexpr std::size_t kSteps = 16;
  constexpr std::size_t kSkipped = kSteps / 2;
  given["steps"] = std::to_string(kSteps);
  const Json scene = play_exercise(app, strategy, given);
  std::map<std::size_t, std::vector<double>> ends;  // of each process's steps, in nanoseconds
  for (const Json& event : scene.at("events"))
    if (event.at("e") == Json("report")) ends[event.at("p").get<std::size_t>()].push_back(event.at("t").get<double>());
  double longest = 0;
  for (const auto& [process, times] : ends) longest = std::max(longest, times.back() - times.at(kSkipped - 1));
  check(longest > 0, "the scene reports no steps");
  return longest / (kSteps - kSkipped) * 1e-9;
}

}  // namespace psring::cli
