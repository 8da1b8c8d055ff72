#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <psring/cli/commands.h>
#include <psring/cli/job_flags.h>
#include <psring/cli/plan_candidates.h>
#include <psring/cli/table_cells.h>
#include <psring/cli/text_table.h>
#include <psring/common/base/error.h>
#include <psring/common/base/file.h>
#include <psring/common/base/json.h>
#include <psring/common/base/spec.h>

namespace psring::cli {
namespace {

struct PlanFlags {
  options::Given job;
  std::vector<std::string> strategies{"ddp", "zero1", "zero2", "zero3", "ps", "ps-colocated", "ps-zero3"};
  std::size_t hosts = 1;
  std::size_t workers_per_host = 1;
  std::string within = "200gbit";
  std::string between;
  std::string fit;
  double tflops = 0;
  std::string memory;
  std::size_t top = 12;
  std::string sweep;
  std::string json;
  std::string out;
};

constexpr const char* kUsualCard = "10gbit,50us";

net::LinkSpec link_of(const char* flag, const std::string& text) {
  try {
    return net::parse_link(text);
  } catch (const Error&) {
    fail(ErrorKind::usage, "{}: expected RATE[,DELAY], such as 25gbit,20us, got '{}'", flag, text);
  }
}

/// The time of a pass: by the line of the layer's kind if it was measured, else by the rate.
bench::PassTime pass_time(const std::optional<bench::Fit>& fit, double tflops) {
  if (tflops == 0 && !fit) return [](const bench::LayerPass&) { return 0.0; };  // --compute sleep sets the times
  if (tflops > 0) return [tflops](const bench::LayerPass& pass) { return pass.flops / (tflops * 1e12); };
  return [fit = *fit](const bench::LayerPass& pass) {
    const bench::CostLine* line = fit.find(pass.line());
    if (line == nullptr)
      fail(ErrorKind::usage, "--fit: has no {}; measure it with psring fit --models, or give --tflops", pass.line());
    return line->seconds(pass.flops, pass.elements);
  };
}

PlanInput input_of(const PlanFlags& flags) {
  if (flags.job.contains("workers"))
    fail(ErrorKind::usage, "--workers: psring plan has --hosts and --workers-per-host");
  if (flags.hosts == 0 || flags.workers_per_host == 0 || flags.hosts * flags.workers_per_host > 4096)
    fail(ErrorKind::usage, "--hosts {} --workers-per-host {}: expected 1 to 4096 workers", flags.hosts,
         flags.workers_per_host);
  const bool sleeps = options::text_of(flags.job, "compute").starts_with("sleep");
  if (flags.fit.empty() && !(flags.tflops > 0) && !sleeps)
    fail(ErrorKind::usage,
         "expected --fit FILE (psring fit writes it), or --tflops X, a worker's 10^12 operations a second");
  PlanInput input{.job = flags.job, .strategies = flags.strategies};
  input.mesh = {flags.hosts, flags.workers_per_host, link_of("--link-within", flags.within),
                link_of("--link-between", flags.between.empty() ? kUsualCard : flags.between)};
  if (flags.job.contains("link")) {
    if (flags.workers_per_host > 1)
      fail(ErrorKind::usage, "--link: shapes every process as a host of its own; it goes with --workers-per-host 1");
    input.mesh.within = input.mesh.between = link_of("--link", options::text_of(flags.job, "link"));
  }
  if (!flags.memory.empty()) input.memory_bytes = static_cast<double>(parse_bytes("--memory", flags.memory));
  if (!flags.fit.empty()) {
    input.fit = bench::load_fit(flags.fit);
    if (!input.fit->tuning.empty()) input.job.try_emplace("tuning", flags.fit);
    const bench::CostLine* peer = input.fit->find("link.peer");
    const bench::CostLine* rate = input.fit->find("rate.peer");
    if (peer != nullptr && rate != nullptr && flags.between.empty() && !flags.job.contains("link")) {
      const bench::CostLine* hop = input.fit->find("hop.ring.tcp");  // the programs' part of the latency
      const double delay = std::max(0.0, peer->fixed_s - (hop == nullptr ? 0 : hop->fixed_s));
      input.mesh.between = {8 / rate->per_unit_s, from_seconds(delay)};
    }
  }
  input.device = flags.tflops > 0;
  input.pass_time = sleeps ? pass_time(std::nullopt, 0) : pass_time(input.fit, flags.tflops);
  return input;
}

std::string ms(double seconds) { return number(1e3 * seconds, seconds < 0.01 ? 2 : 1); }

double per_host(const PlanRow& row) { return row.samples_per_s / static_cast<double>(row.hosts); }

std::string hosts(std::size_t count) { return fmt::format("{} host{}", count, count == 1 ? "" : "s"); }

void print(const std::vector<PlanRow>& rows, const PlanFlags& flags, const PlanInput& input) {
  fmt::print("{} workers on {}; {} within a host, {} between hosts\n", input.mesh.workers(), hosts(input.mesh.hosts),
             net::to_string(input.mesh.within), net::to_string(input.mesh.between));
  TextTable table({"strategy", "hosts", "step ms", "exposed", rows.front().tokens ? "tokens/s" : "samples/s",
                   "per host", "sent MB", "GiB", "bound by"});
  for (std::size_t i = 0; i < std::min(rows.size(), flags.top); ++i) {
    const PlanRow& row = rows[i];
    table.add({row.label, std::to_string(row.hosts), ms(row.step.step_s), percent(row.step.exposed_s / row.step.step_s),
               number(row.samples_per_s, 0), number(per_host(row), 1), number(row.sent_bytes / 1e6, 1),
               number(row.process_bytes / (1 << 30), 2) + (row.fits ? "" : "!"), row.step.bound});
  }
  fmt::print("{}", table.plain(80));
  if (std::ranges::any_of(rows, [](const PlanRow& row) { return !row.fits; }))
    fmt::print("!: a process needs more than --memory {}\n", flags.memory);
}

/// The reason for the order of the first two rows, in figures.
std::string reason(const PlanRow& first, const PlanRow& second) {
  const std::string names = fmt::format("{} beats {}", first.label, second.label);
  if (first.fits != second.fits) return fmt::format("{}, which does not fit into memory", names);
  if (per_host(first) < 1.005 * per_host(second))
    return fmt::format("{} and {} are equal within 0.5 %", first.label, second.label);
  if (first.hosts != second.hosts && first.step.step_s > 0.995 * second.step.step_s)
    return fmt::format("{}: it needs {}, the second {}, for steps of {} and {} ms", names, hosts(first.hosts),
                       hosts(second.hosts), ms(first.step.step_s), ms(second.step.step_s));
  if (second.sent_bytes > 1.02 * first.sent_bytes)
    return fmt::format("{}: its busiest card carries {:.4g} MB a step, the second's {:.4g} MB", names,
                       first.sent_bytes / 1e6, second.sent_bytes / 1e6);
  return fmt::format("{}: {} of its {} ms are exposed, of the second's {} ms {}", names, ms(first.step.exposed_s),
                     ms(first.step.step_s), ms(second.step.step_s), ms(second.step.exposed_s));
}

Json json_of(const PlanRow& row) {
  return {{"label", row.label},
          {"strategy", row.job.strategy},
          {"servers", row.job.servers},
          {"hosts", row.hosts},
          {"step_s", row.step.step_s},
          {"compute_s", row.step.compute_s},
          {"exposed_s", row.step.exposed_s},
          {row.tokens ? "tokens_per_s" : "samples_per_s", row.samples_per_s},
          {"sent_bytes", row.sent_bytes},
          {"process_bytes", row.process_bytes},
          {"fits", row.fits},
          {"bound", row.step.bound}};
}

Json json_of(const std::vector<PlanRow>& rows) {
  Json list = Json::array();
  for (const PlanRow& row : rows) list.push_back(json_of(row));
  return list;
}

/// The first row's job as a file for --config.
std::string config_of(const PlanRow& row, const options::Given& given) {
  options::Given all = given;
  for (const auto& [name, text] : row.choice) all[name] = text;
  all["strategy"] = row.job.strategy;
  all["workers"] = std::to_string(row.job.workers);
  if (row.kind->servers && !row.kind->one_server) all["servers"] = std::to_string(row.job.servers);
  std::string text = fmt::format("# psring plan: {}, {:.4g} ms a step\n", row.label, 1e3 * row.step.step_s);
  for (const auto& [name, value] : all) text += fmt::format("{} = \"{}\"\n", name, value);
  return text;
}

/// One of the plan's own numbers at several values: "hosts=1..512" doubles, "hosts=1,3,9" lists.
struct Sweeping {
  std::string name;
  std::vector<std::string> values;
};

Sweeping parse_sweep(const std::string& text) {
  const std::size_t equals = text.find('=');
  const auto refuse = [&] {
    fail(ErrorKind::usage,
         "--sweep: expected hosts=1..512, servers=1,4, bucket=1M,25M or link-between=1gbit,10gbit, got '{}'", text);
  };
  if (equals == std::string::npos) refuse();
  Sweeping sweep{text.substr(0, equals), {}};
  std::string values = text.substr(equals + 1);
  if (sweep.name != "hosts" && sweep.name != "workers-per-host" && sweep.name != "servers" && sweep.name != "bucket" &&
      sweep.name != "link-between" && sweep.name != "global-batch")
    refuse();
  if (const std::size_t dots = values.find(".."); dots != std::string::npos) {
    const std::size_t most = parse_positive("--sweep", values.substr(dots + 2));
    for (std::size_t value = parse_positive("--sweep", values.substr(0, dots)); value <= most; value *= 2)
      sweep.values.push_back(std::to_string(value));
  } else {
    for (std::size_t at = 0; at <= values.size();) {
      const std::size_t end = std::min(values.find(',', at), values.size());
      sweep.values.push_back(values.substr(at, end - at));
      at = end + 1;
    }
  }
  if (sweep.values.empty() || sweep.values.front().empty()) refuse();
  return sweep;
}

PlanFlags at_value(PlanFlags flags, const Sweeping& sweep, const std::string& value) {
  if (sweep.name == "hosts")
    flags.hosts = parse_positive("--sweep", value);
  else if (sweep.name == "workers-per-host")
    flags.workers_per_host = parse_positive("--sweep", value);
  else if (sweep.name == "link-between")
    flags.between = value;
  else
    flags.job[sweep.name] = value;
  return flags;
}

/// Prints the best row at each value.
int sweep(const PlanFlags& flags, const App& app) {
  const Sweeping sweep = parse_sweep(flags.sweep);
  TextTable table({sweep.name, "hosts", "step ms", "exposed", "per s", "per host", "bound by", "best"});
  Json points = Json::array();
  for (const std::string& value : sweep.values) {
    const std::vector<PlanRow> rows = plan_rows(input_of(at_value(flags, sweep, value)), app);
    const PlanRow& best = rows.front();
    table.add({value, std::to_string(best.hosts), ms(best.step.step_s), percent(best.step.exposed_s / best.step.step_s),
               number(best.samples_per_s, 0), number(per_host(best), 1), best.step.bound, best.label});
    points.push_back({{sweep.name, value}, {"rows", json_of(rows)}});
  }
  fmt::print("{}", table.plain());
  if (!flags.json.empty()) write_whole(flags.json, Json{{"sweep", sweep.name}, {"points", points}}.dump(2) + "\n");
  return 0;
}

int plan(const PlanFlags& flags, const App& app) {
  if (!flags.sweep.empty()) return sweep(flags, app);
  const PlanInput input = input_of(flags);
  const std::vector<PlanRow> rows = plan_rows(input, app);
  print(rows, flags, input);
  if (rows.size() > 1) fmt::print("{}", wrapped(reason(rows[0], rows[1]), 80, 2));
  if (!flags.json.empty()) write_whole(flags.json, Json{{"rows", json_of(rows)}}.dump(2) + "\n");
  if (!flags.out.empty()) {
    write_whole(flags.out, config_of(rows.front(), flags.job));
    fmt::print("job: psring train --config {}\n", flags.out);
  }
  return 0;
}

}  // namespace

Command add_plan(const Flags& program) {
  const Flags command = program.add_command("plan", "predict which strategy suits a cluster, before it is rented");
  auto flags = std::make_shared<PlanFlags>();  // shared: the parser fills it in, the command reads it
  command.add("--strategies", flags->strategies, "strategies to compare, separated by commas")
      .separate_by(',')
      .show_default();
  command.add("--hosts", flags->hosts, "hosts with workers").show_default();
  command.add("--workers-per-host", flags->workers_per_host, "workers of each host").show_default();
  command.add("--link-within", flags->within, "RATE[,DELAY] of each worker's link to the others of its host")
      .show_default();
  command.add("--link-between", flags->between, "RATE[,DELAY] of each host's network card")
      .show_default("that of --fit, if psring fit --peer measured it, else 10gbit,50us");
  command.add("--fit", flags->fit, "costs that psring fit has measured");
  command.add("--tflops", flags->tflops,
              "10^12 operations that a worker computes in a second; replaces measured times");
  command.add("--memory", flags->memory, "memory of a process, such as a GPU's 80G: rows that need more come last")
      .show_value("SIZE");
  command.add("--top", flags->top, "rows to print").show_default();
  command.add("--sweep", flags->sweep,
              "plan for several values, and print the best row of each: hosts=1..512 (doubling), or a list such as "
              "link-between=1gbit,10gbit; also workers-per-host, servers, bucket, global-batch");
  command.add("--json", flags->json, "also write all rows to this file");
  command.add("--out", flags->out, "write the first row's options to this file, for psring train --config");
  add_job_flags(command, flags->job);
  command.add_footer(
      "Nothing is started. Rows are in the order of samples per second and host: a standalone server needs a host, "
      "too. "
      "With --link every worker is a host of its own, as in psring train.");
  return [flags](const Invocation& invocation) { return plan(*flags, invocation.app); };
}

}  // namespace psring::cli
