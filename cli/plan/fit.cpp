#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>

#include <psring/bench/predict/fit.h>
#include <psring/bench/predict/measure.h>
#include <psring/cli/commands.h>
#include <psring/cli/doctor/doctor_link.h>
#include <psring/cli/options/parse.h>
#include <psring/cli/plan/fit_of_link.h>
#include <psring/cli/text_table.h>
#include <psring/common/base/system/standard_files.h>
#include <psring/common/base/text/error.h>

namespace psring::cli {
namespace {

constexpr auto kLinkMeasure = std::chrono::milliseconds(700);
constexpr auto kMessageMeasure = std::chrono::milliseconds(60);

struct FitFlags {
  std::string out = "fit.json";
  std::string peer;
  std::string key;
  std::vector<std::string> models;
  double join_timeout = 30;
};

/// Small models whose layers have several shapes of each kind.
const std::vector<std::string> kModels{"mlp:256-256-256-10",
                                       "mlp:784-512-512-10",
                                       "mlp:1024-1024-1024-256",
                                       "conv:1x28x28-d0.1-16c3-p2-32c3-r3-d0.2-p2-128-10",
                                       "conv:3x16x16-8c3-d0.1-p2-32c3-64c3-r3-p2-10",
                                       "gpt:layers=1,dim=128,heads=2,context=64",
                                       "gpt:layers=1,dim=256,heads=4,context=128",
                                       "gpt:layers=1,dim=384,heads=6,context=64"};
const std::vector<std::size_t> kBatches{1, 4, 16};
/// The model that is trained beside other work.
constexpr const char* kUsualModel = "mlp:784-512-512-10";
constexpr std::size_t kUsualBatch = 64;

LinkFigures measure_peer(const FitFlags& flags) {
  const net::Endpoint peer = net::resolve_endpoint("--peer", flags.peer);
  LinkAsker asker(net::JobKey::load(flags.key), to_string(peer),
                  SystemClock().now() + from_seconds(flags.join_timeout));
  return asker.measure(kLinkMeasure);
}

bench::Fit measure(const FitFlags& flags, const App& app) {
  bench::Fit fit = fit_of_program();
  if (!flags.peer.empty()) add_link(measure_peer(flags), fit);
  bench::Measured measured;
  bench::measure_messages(kMessageMeasure, measured);
  const auto model_of = [&](const std::string& text) {
    return app.worker_registries().models.make(Spec::parse("--models", text));
  };
  for (const std::string& text : flags.models.empty() ? kModels : flags.models)
    for (const DType type : {DType::f32, DType::bf16})
      for (const std::size_t batch : kBatches) bench::measure_layers(*model_of(text), batch, type, measured);
  bench::measure_aggregation(measured);
  bench::measure_updates(app.optimizers(), measured);
  bench::measure_copies(measured);
  fit.lines.merge(bench::fit_lines(measured));
  const auto usual = model_of(kUsualModel);
  fit.factors["slowdown"] = bench::measure_slowdown(*usual, kUsualBatch);
  fit.factors["deviation"] = bench::measure_deviation(*usual, kUsualBatch);
  fit.factors["sleep_s"] = bench::measure_sleep();
  return fit;
}

std::string rate(const bench::CostLine& line) {
  if (line.per_unit_s <= 0) return kNothing;
  return fmt::format("{:.3g} G{}/s", 1e-9 / line.per_unit_s, line.unit);
}

void print(const bench::Fit& fit) {
  TextTable table({"cost", "fixed us", "rate", "+-", "median error", "worst", "points"});
  std::vector<std::string> bad;
  for (const auto& [name, line] : fit.lines) {
    const auto share = [&](double value) { return line.points == 0 ? kNothing : fmt::format("{:.0f} %", 100 * value); };
    table.add({name, fmt::format("{:.2f}", 1e6 * line.fixed_s), rate(line), share(line.per_unit_error),
               share(line.median_error), share(line.worst_error), std::to_string(line.points)});
    if (!line.good()) bad.push_back(name);
  }
  out::print("{}", table.plain());
  for (const auto& [name, value] : fit.factors) out::print("{}: {:.4g}\n", name, value);
  if (bad.empty()) return;
  out::print("{}", wrapped(fmt::format("a line does not fit these within 10 %: {}; predictions that use them are rough",
                                       fmt::join(bad, ", ")),
                           80, 2));
}

int run(const FitFlags& flags, const App& app) {
  if (!flags.peer.empty() && flags.key.empty())
    fail(ErrorKind::usage, "--key: expected with --peer; psring keygen makes one");
  if (flags.peer.empty() && !flags.key.empty()) fail(ErrorKind::usage, "--key: goes with --peer");
  bench::open_fit("--out", flags.out, bench::fit_of_host().host);  // throws before the measurement
  const bench::Fit fit = measure(flags, app);
  bench::add_to_fit("--out", flags.out, fit);
  print(fit);
  out::print("fit: {}\n", flags.out);
  return 0;
}

}  // namespace

Command add_fit(const Flags& program) {
  const Flags command = program.add_command("fit", "measure this host's costs for psring plan");
  auto flags = std::make_shared<FitFlags>();  // shared: the parser fills it in, the command reads it
  command.add("--out", flags->out, "file to write").show_value("FILE").show_default();
  command.add("--models", flags->models, "models whose layers are measured, separated by spaces")
      .show_default("six small ones");
  command.add("--peer", flags->peer, "HOST:PORT of a doctor that listens on another host: also measure the link to it");
  command.add("--key", flags->key, "key file, the same on both hosts").show_value("FILE");
  command.add("--join-timeout", flags->join_timeout, "seconds to wait for the other host").show_default();
  add_config(command);
  command.add_footer(
      "Takes about 40 s on a quiet host. A cost that no straight line describes is named. Lines that other commands "
      "added to the file stay: psring-bench all_reduce --tune, psring doctor --peer --fit.");
  return [flags](const Invocation& invocation) { return run(*flags, invocation.app); };
}

}  // namespace psring::cli
