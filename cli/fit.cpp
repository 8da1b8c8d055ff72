#include <algorithm>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <fmt/format.h>
#include <unistd.h>
#include <version.h>

#include <psring/bench/cost/fit.h>
#include <psring/bench/cost/measure.h>
#include <psring/cli/commands.h>
#include <psring/cli/doctor_link.h>
#include <psring/cli/parse.h>
#include <psring/cli/text_table.h>
#include <psring/common/base/error.h>
#include <psring/common/base/file.h>
#include <psring/common/device/processor.h>

namespace psring::cli {
namespace {

constexpr auto kLinkMeasure = std::chrono::milliseconds(700);

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
                                       "gpt:layers=1,dim=128,heads=2,context=64",
                                       "gpt:layers=1,dim=256,heads=4,context=128",
                                       "gpt:layers=1,dim=384,heads=6,context=64"};
const std::vector<std::size_t> kBatches{4, 16};

std::string host_name() {
  std::string name(256, '\0');
  if (::gethostname(name.data(), name.size() - 1) != 0) return "?";
  return name.substr(0, name.find('\0'));
}

/// A link's line from its latency and rate.
bench::CostLine line_of(const LinkFigures& figures) {
  return {.fixed_s = figures.round_trip_s / 2,
          .per_unit_s = 1 / std::min(figures.sending_bytes_per_s, figures.receiving_bytes_per_s),
          .unit = "byte"};
}

LinkFigures measure_peer(const FitFlags& flags) {
  const net::Endpoint peer = net::resolve_endpoint("--peer", flags.peer);
  LinkAsker asker(net::JobKey::load(flags.key), to_string(peer),
                  SystemClock().now() + from_seconds(flags.join_timeout));
  return asker.measure(kLinkMeasure);
}

std::string unit_of(const std::string& line) { return line.starts_with("compute.") ? "FLOP" : "byte"; }

bench::Fit measure(const FitFlags& flags, const App& app) {
  bench::Fit fit{
      .host = host_name(), .processor = describe_processor(), .processors = std::thread::hardware_concurrency()};
  if (!flags.peer.empty()) fit.lines["link.peer"] = line_of(measure_peer(flags));
  fit.lines["link.tcp"] = line_of(measure_loopback(kLinkMeasure));
  bench::Measured measured;
  for (const std::string& text : flags.models.empty() ? kModels : flags.models) {
    const auto model = app.worker_registries().models.make(Spec::parse("--models", text));
    for (const std::size_t batch : kBatches) bench::measure_layers(*model, batch, measured);
  }
  bench::measure_updates(measured);
  bench::measure_copies(measured);
  for (const auto& [name, points] : measured) fit.lines[name] = bench::fit_line(points, unit_of(name));
  return fit;
}

std::string rate(const bench::CostLine& line) {
  if (line.per_unit_s <= 0) return kNothing;
  return fmt::format("{:.3g} G{}/s", 1e-9 / line.per_unit_s, line.unit);
}

void print(const bench::Fit& fit) {
  TextTable table({"cost", "fixed us", "rate", "median error", "worst", "points"});
  std::vector<std::string> bad;
  for (const auto& [name, line] : fit.lines) {
    const auto share = [&](double value) { return line.points == 0 ? kNothing : fmt::format("{:.0f} %", 100 * value); };
    table.add({name, fmt::format("{:.2f}", 1e6 * line.fixed_s), rate(line), share(line.median_error),
               share(line.worst_error), std::to_string(line.points)});
    if (!line.good()) bad.push_back(name);
  }
  fmt::print("{}", table.plain());
  if (bad.empty()) return;
  fmt::print("{}", wrapped(fmt::format("a line does not fit these within 10 %: {}; predictions that use them are rough",
                                       fmt::join(bad, ", ")),
                           80, 2));
}

int run(const FitFlags& flags, const App& app) {
  if (!flags.peer.empty() && flags.key.empty())
    fail(ErrorKind::usage, "--key: expected with --peer; psring keygen makes one");
  if (flags.peer.empty() && !flags.key.empty()) fail(ErrorKind::usage, "--key: goes with --peer");
  const bench::Fit fit = measure(flags, app);
  Json json = bench::to_json(fit);
  json["program"] = fmt::format("psring {} ({})", kVersion, kCommit);
  write_whole(flags.out, json.dump(2) + "\n");
  print(fit);
  fmt::print("fit: {}\n", flags.out);
  return 0;
}

}  // namespace

Command add_fit(const Flags& program) {
  const Flags command = program.add_command("fit", "measure this host's costs for psring plan");
  auto flags = std::make_shared<FitFlags>();  // shared: the parser fills it in, the command reads it
  command.add("--out", flags->out, "file to write").show_default();
  command.add("--models", flags->models, "models whose layers are measured, separated by spaces")
      .show_default("six small ones");
  command.add("--peer", flags->peer, "HOST:PORT of a doctor that listens on another host: also measure the link to it");
  command.add("--key", flags->key, "key file, the same on both hosts");
  command.add("--join-timeout", flags->join_timeout, "seconds to wait for the other host").show_default();
  add_config(command);
  command.add_footer("Takes about 20 s on a quiet host. A cost that no straight line describes is named.");
  return [flags](const Invocation& invocation) { return run(*flags, invocation.app); };
}

}  // namespace psring::cli
