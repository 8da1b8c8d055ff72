// psring plan: predicts the step of each strategy on a cluster; nothing is started.
#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <fmt/ranges.h>
#include <version.h>

#include <psring/cli/commands.h>
#include <psring/cli/compare/predicted_step.h>
#include <psring/cli/options/job_flags.h>
#include <psring/cli/plan/plan_document.h>
#include <psring/cli/plan/plan_text.h>
#include <psring/cli/text_table.h>
#include <psring/common/base/system/file.h>
#include <psring/common/base/system/standard_files.h>
#include <psring/common/base/text/error.h>
#include <psring/common/base/text/number.h>
#include <psring/common/base/text/spec.h>
#include <psring/common/base/text/text.h>
#include <psring/view/page.h>

namespace psring::cli {
namespace {

constexpr const char* kUsualCard = "10gbit,50us";
constexpr std::size_t kMostWorkers = 4096;
constexpr double kMostTflops = 1e9;
constexpr std::size_t kLeastCurve = 64;  ///< hosts at which the page's curves end, or later

struct PlanFlags {
  options::Given job;
  std::vector<std::string> strategies;
  std::vector<std::string> choose;
  std::size_t hosts = 1;
  std::size_t workers_per_host = 1;
  bool one_machine = false;
  std::string within = "200gbit";
  std::string between;
  std::string fit;
  std::string tflops;
  std::string memory;
  std::size_t top = 12;
  std::string sweep;
  std::string json;
  std::string html;
  std::string out;
  std::size_t row = 1;
  std::string lang = "en";

  std::optional<double> memory_bytes() const {
    if (memory.empty()) return std::nullopt;
    const std::size_t bytes = parse_bytes("--memory", memory);
    if (bytes == 0) fail(ErrorKind::usage, "--memory: expected bytes > 0, got '{}'", memory);
    return static_cast<double>(bytes);
  }
};

net::LinkSpec link_of(const char* flag, const std::string& text) {
  try {
    return net::parse_link(text);
  } catch (const Error&) {
    fail(ErrorKind::usage, "{}: expected RATE[,DELAY], such as 25gbit,20us, got '{}'", flag, text);
  }
}

/// A worker's operations per second by type; under "" for all types that are not listed.
using Rates = std::map<std::string, double>;

/// Parses --tflops: "50", or "f32=20,bf16=150".
Rates rates_of(const std::string& text) {
  Rates rates;
  const auto refuse = [&] {
    fail(ErrorKind::usage, "--tflops: expected a rate such as 50, or f32=20,bf16=150, got '{}'", text);
  };
  if (text.empty()) return rates;
  for (const std::string& item : split(text)) {
    const std::size_t equals = item.find('=');
    const std::string type = equals == std::string::npos ? "" : item.substr(0, equals);
    const std::string number = equals == std::string::npos ? item : item.substr(equals + 1);
    const double rate = read_number<double>(number).value_or(0);
    if (!(rate > 0 && rate <= kMostTflops) || (type != "" && type != "f32" && type != "bf16" && type != "f16"))
      refuse();
    if (!rates.emplace(type, rate * 1e12).second) refuse();
  }
  return rates;
}

/// The time of a pass: by the rate if it is given, else by the line of the layer's kind.
bench::PassTime pass_time(const std::optional<bench::Fit>& fit, const Rates& rates) {
  if (rates.empty() && !fit) return [](const bench::LayerPass&) { return 0.0; };  // --compute sleep sets the times
  if (!rates.empty())
    return [rates](const bench::LayerPass& pass) {
      const auto named = rates.find(std::string(name_of(pass.type)));
      const auto found = named == rates.end() ? rates.find("") : named;
      if (found == rates.end())
        fail(ErrorKind::usage, "--tflops: has no rate of {}; add {}=RATE", name_of(pass.type), name_of(pass.type));
      return pass.flops / found->second;
    };
  return [fit = *fit](const bench::LayerPass& pass) {
    const bench::CostLine* line = fit.find(pass.line());
    if (line == nullptr)
      fail(ErrorKind::usage, "--fit: has no {}; measure it with psring fit --models, or give --tflops", pass.line());
    return line->seconds(pass.flops, pass.elements);
  };
}

bench::Mesh mesh_of(const PlanFlags& flags) {
  if (flags.job.contains("workers"))
    fail(ErrorKind::usage, "--workers: psring plan has --hosts and --workers-per-host");
  if (flags.hosts == 0 || flags.workers_per_host == 0 || flags.hosts > kMostWorkers ||
      flags.hosts * flags.workers_per_host > kMostWorkers)
    fail(ErrorKind::usage, "--hosts {} --workers-per-host {}: expected 1 to {} workers", flags.hosts,
         flags.workers_per_host, kMostWorkers);
  bench::Mesh mesh{flags.hosts, flags.workers_per_host, link_of("--link-within", flags.within),
                   link_of("--link-between", flags.between.empty() ? kUsualCard : flags.between), flags.one_machine};
  if (flags.job.contains("link")) {
    if (flags.workers_per_host > 1)
      fail(ErrorKind::usage, "--link: shapes every process as a host of its own; it goes with --workers-per-host 1");
    mesh.within = mesh.between = link_of("--link", options::text_of(flags.job, "link"));
    mesh.in_order = true;
  }
  return mesh;
}

void add_fit(const PlanFlags& flags, PlanInput& input) {
  input.fit = bench::load_fit("--fit", flags.fit);
  const bench::CostLine* peer = input.fit->find("link.peer");
  const bench::CostLine* rate = input.fit->find("rate.peer");
  if (peer == nullptr || rate == nullptr || !flags.between.empty() || flags.job.contains("link")) return;
  const bench::CostLine& hop = input.fit->line("hop.ring.tcp");  // the programs' part of the latency
  const double delay = std::max(0.0, peer->fixed_s - hop.fixed_s);
  input.mesh.between = {8 / rate->per_unit_s, from_seconds(delay)};
}

/// A fit's choice of algorithms is an option of the job: the run has it, too.
PlanFlags with_tuning(PlanFlags flags) {
  if (!flags.fit.empty() && !bench::load_fit("--fit", flags.fit).tuning.empty())
    flags.job.try_emplace("tuning", flags.fit);
  return flags;
}

PlanInput input_of(const PlanFlags& flags) {
  const bool sleeps = options::text_of(flags.job, "compute").starts_with("sleep");
  if (flags.fit.empty() && flags.tflops.empty() && !sleeps)
    fail(ErrorKind::usage,
         "expected --fit FILE (psring fit writes it), or --tflops X, a worker's 10^12 operations a second");
  if (flags.one_machine && flags.fit.empty())
    fail(ErrorKind::usage, "--one-machine: expected with --fit FILE, which knows the machine's processors");
  if (const std::string fault = unpredicted_fault(options::text_of(flags.job, "fault")); !fault.empty())
    fail(ErrorKind::usage, "--fault {}: a plan knows slow and jitter alone; psring step shows the others", fault);
  PlanInput input{.job = flags.job,
                  .strategies = flags.strategies,
                  .choose = {flags.choose.begin(), flags.choose.end()},
                  .mesh = mesh_of(flags),
                  .memory_bytes = flags.memory_bytes()};
  for (const std::string& name : input.choose) {
    if (std::ranges::find(kChoosable, name) == std::end(kChoosable))
      fail(ErrorKind::usage, "--choose: expected {}, got '{}'", fmt::join(kChoosable, ", "), name);
    if (flags.job.contains(name))
      fail(ErrorKind::usage, "--choose {}: --{} is given, so there is nothing to choose", name, name);
  }
  if (!flags.fit.empty()) add_fit(flags, input);
  const Rates rates = rates_of(flags.tflops);
  input.device = !rates.empty();
  input.pass_time = sleeps ? pass_time(std::nullopt, {}) : pass_time(input.fit, rates);
  return input;
}

PlanFlags at_value(PlanFlags flags, const std::string& name, const std::string& value) {
  if (name == "hosts")
    flags.hosts = parse_positive("--sweep hosts", value);
  else if (name == "workers-per-host")
    flags.workers_per_host = parse_positive("--sweep workers-per-host", value);
  else if (name == "link-within")
    flags.within = value;
  else if (name == "link-between")
    flags.between = value;
  else if (name == "tflops")
    flags.tflops = value;
  else if (name == "memory")
    flags.memory = value;
  else
    flags.job[name] = value;
  return flags;
}

struct Swept {
  PlanSweep sweep;
  std::vector<PlanPoint> points;
  std::vector<std::string> left_out;  ///< why a value has no point
};

/// Plans at each value. A value that no strategy can have (a batch that cannot be divided) is left out; throws usage if
/// none is left.
Swept sweep_over(const PlanFlags& flags, const PlanSweep& sweep, const App& app) {
  Swept swept{.sweep = {sweep.name, {}}};
  std::optional<Error> refused;
  for (const std::string& value : sweep.values) {
    try {
      const PlanInput input = input_of(at_value(flags, sweep.name, value));
      swept.points.push_back({.value = value, .mesh = input.mesh, .plan = plan_rows(input, app)});
      swept.sweep.values.push_back(value);
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::usage) throw;
      if (!refused) refused = error;
      swept.left_out.push_back(fmt::format("{}={}: {}", sweep.name, value, error.what()));
    }
  }
  if (swept.points.empty()) throw *refused;
  const std::vector<double> positions = swept.sweep.positions();
  for (std::size_t i = 0; i < positions.size(); ++i) swept.points[i].x = positions[i];
  return swept;
}

/// The sweep of the page's curves if none is given: 1, 2, 4 ... hosts, to twice the planned number at least.
PlanSweep default_sweep(const PlanFlags& flags) {
  PlanSweep sweep{"hosts", {}};
  const std::size_t most = std::max(2 * flags.hosts, kLeastCurve);
  for (std::size_t hosts = 1; hosts <= most && hosts * flags.workers_per_host <= kMostWorkers; hosts *= 2)
    sweep.values.push_back(std::to_string(hosts));
  return sweep;
}

Json document_of(const PlanFlags& flags, const std::vector<std::string>& words) {
  Json document = {{"format", "psring-plan"},
                   {"version", 1},
                   {"program", fmt::format("psring {} ({})", kVersion, kCommit)},
                   {"command", words},
                   {"model", flags.job.contains("model") ? options::text_of(flags.job, "model") : JobOptions{}.model}};
  if (const auto bytes = flags.memory_bytes()) document["memory_bytes"] = *bytes;
  return document;
}

void add(const Json& members, Json& document) {
  for (const auto& [key, value] : members.items()) document[key] = value;
}

void write(const PlanFlags& flags, const Json& document) {
  if (!flags.json.empty()) write_whole(flags.json, document.dump(2) + "\n");
  if (flags.html.empty()) return;
  write_whole(flags.html, view::plan_page(document));
  out::print("{}", say(parse_language(flags.lang), {"page: {}; open it in a browser\n", "页面：{}，请用浏览器打开\n"},
                       flags.html));
}

/// Adds the sweep of --sweep, or of the page's curves.
void add_sweep(const Swept& swept, const PlanFlags& flags, Json& document) {
  add(to_json(swept.sweep, swept.points, flags.job), document);
  document["values_left_out"] = swept.left_out;
}

int plan_sweep(const PlanFlags& flags, const Invocation& invocation) {
  if (!flags.out.empty()) fail(ErrorKind::usage, "--out with --sweep: a job has one value; plan it without --sweep");
  const Language language = parse_language(flags.lang);
  const Swept swept = sweep_over(flags, parse_plan_sweep(flags.sweep), invocation.app);
  out::print("{}", sweep_table(swept.sweep, swept.points, language));
  for (const std::string& line : swept.left_out)
    out::print("{}", wrapped(say(language, {"left out: {}", "略去：{}"}, line), 80, 2));
  Json document = document_of(flags, invocation.words);
  add_sweep(swept, flags, document);
  write(flags, document);
  return 0;
}

int plan(const PlanFlags& flags, const Invocation& invocation) {
  const Language language = parse_language(flags.lang);
  if (flags.top == 0) fail(ErrorKind::usage, "--top: expected a number > 0");
  if (!flags.sweep.empty()) return plan_sweep(flags, invocation);
  const PlanInput input = input_of(flags);
  const PlanRows rows = plan_rows(input, invocation.app);
  if (flags.row == 0 || flags.row > rows.rows.size())
    fail(ErrorKind::usage, "--row {}: the plan has rows 1 to {}", flags.row, rows.rows.size());
  if (flags.row != PlanFlags().row && flags.out.empty()) fail(ErrorKind::usage, "--row {}: needs --out", flags.row);
  out::print("{}{}", plan_table(rows, input.mesh, input.memory_bytes, flags.top, language),
             wrapped(plan_reason(rows, language), 80, 2));
  Json document = document_of(flags, invocation.words);
  document["mesh"] = to_json(input.mesh);
  add(to_json(rows, flags.job), document);
  if (!flags.html.empty()) add_sweep(sweep_over(flags, default_sweep(flags), invocation.app), flags, document);
  write(flags, document);
  if (!flags.out.empty()) {
    write_whole(flags.out, config_of(rows.rows[flags.row - 1], input.mesh, flags.job));
    out::print("{}", say(language, {"job: psring train --config {}\n", "作业：psring train --config {}\n"}, flags.out));
  }
  return 0;
}

void add_cluster_flags(const Flags& command, PlanFlags& flags) {
  command.add("--hosts", flags.hosts, "hosts with workers").show_default();
  command.add("--workers-per-host", flags.workers_per_host, "workers of each host").show_default();
  command.add("--link-within", flags.within, "RATE[,DELAY] of each worker's link to the others of its host")
      .show_default();
  command.add("--link-between", flags.between, "RATE[,DELAY] of each host's network card")
      .show_default("that of --fit, if psring fit --peer measured it, else 10gbit,50us");
  command.add_switch("--one-machine", flags.one_machine,
                     "the hosts are containers or network namespaces of one machine, and share its processors");
  command.add("--fit", flags.fit, "costs that psring fit has measured").show_value("FILE");
  command
      .add("--tflops", flags.tflops,
           "10^12 operations that a worker computes in a second, or one rate for each type: f32=20,bf16=150; replaces "
           "measured times")
      .show_value("RATE");
  command.add("--memory", flags.memory, "memory of a process, such as a GPU's 80G: rows that need more come last")
      .show_value("SIZE");
}

void add_output_flags(const Flags& command, PlanFlags& flags) {
  command.add("--top", flags.top, "rows to print").show_default();
  command.add("--sweep", flags.sweep,
              "plan for several values, and print the best row of each: hosts=1..512 (doubling), or a list such as "
              "link-between=1gbit,10gbit; also workers-per-host, servers, bucket, global-batch and others");
  command.add("--json", flags.json, "also write all rows to this file").show_value("FILE");
  command
      .add("--html", flags.html,
           "also write a page with curves and all rows to this file; without --sweep the "
           "curves are over the number of hosts")
      .show_value("FILE");
  command.add("--out", flags.out, "write a row's options to this file, for psring train --config").show_value("FILE");
  command.add("--row", flags.row, "the row of --out").show_default();
  command.add("--lang", flags.lang, kLanguageHelp).show_default();
}

}  // namespace

Command add_plan(const Flags& program) {
  const Flags command = program.add_command("plan", "predict which strategy suits a cluster, before it is rented");
  auto flags = std::make_shared<PlanFlags>();  // shared: the parser fills it in, the command reads it
  command
      .add("--strategies", flags->strategies,
           "strategies to compare, separated by commas; tp:2+pp:4:1f1b+zero1 is zero1 with --tensor 2 and --pipeline 4")
      .separate_by(',')
      .show_default(fmt::format("{}, and meshes that the model's layers allow", fmt::join(kUsualStrategies, ",")));
  command
      .add("--choose", flags->choose,
           "options that the plan may set in addition, separated by commas: compress, precision, accumulate, "
           "activation-checkpointing. Rows that compress, or compute in another precision, are marked as inexact")
      .separate_by(',');
  add_cluster_flags(command, *flags);
  add_output_flags(command, *flags);
  add_job_flags(command, flags->job);
  command.add_footer(
      "Nothing is started. Rows are in the order of samples per second and host, and each host has one network card: a "
      "standalone server needs a host, too. If nothing fits into --memory, the plan tries activation checkpointing and "
      "more micro-batches. With --link every worker is a host of its own, as in psring train.");
  return [flags](const Invocation& invocation) { return plan(with_tuning(*flags), invocation); };
}

}  // namespace psring::cli
