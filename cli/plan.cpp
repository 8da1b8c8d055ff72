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
#include <psring/common/base/spec.h>

namespace psring::cli {
namespace {

struct PlanFlags {
  options::Given job;
  std::vector<std::string> strategies{"ddp", "zero1", "zero2", "zero3", "ps", "ps-colocated", "ps-zero3"};
  std::size_t hosts = 1;
  std::size_t workers_per_host = 1;
  std::string within = "200gbit";
  std::string between = "10gbit,50us";
  std::string memory;
  std::string fit;
  double tflops = 0;
  std::size_t top = 12;
};

net::LinkSpec link_of(const char* flag, const std::string& text) {
  try {
    return net::parse_link(text);
  } catch (const Error&) {
    fail(ErrorKind::usage, "{}: expected RATE[,DELAY], such as 25gbit,20us, got '{}'", flag, text);
  }
}

/// The time of a pass: by the line of the layer's kind if it was measured, else by the rate.
bench::PassTime pass_time(const std::optional<bench::Fit>& fit, double tflops) {
  if (tflops > 0) return [tflops](const bench::LayerPass& pass) { return pass.flops / (tflops * 1e12); };
  return [fit = *fit](const bench::LayerPass& pass) {
    const bench::CostLine* line = fit.find(pass.line(DType::f32));
    if (line == nullptr)
      fail(ErrorKind::usage, "--fit: has no {}; measure it with psring fit --models, or give --tflops",
           pass.line(DType::f32));
    return line->seconds(pass.size());
  };
}

PlanInput input_of(const PlanFlags& flags) {
  if (flags.job.contains("link")) fail(ErrorKind::usage, "--link: psring plan has --link-within and --link-between");
  if (flags.job.contains("workers"))
    fail(ErrorKind::usage, "--workers: psring plan has --hosts and --workers-per-host");
  if (flags.hosts == 0 || flags.workers_per_host == 0 || flags.hosts * flags.workers_per_host > 4096)
    fail(ErrorKind::usage, "--hosts {} --workers-per-host {}: expected 1 to 4096 workers", flags.hosts,
         flags.workers_per_host);
  if (flags.fit.empty() && !(flags.tflops > 0))
    fail(ErrorKind::usage,
         "expected --fit FILE (psring fit writes it), or --tflops X, a worker's 10^12 operations a second");
  PlanInput input{.job = flags.job, .strategies = flags.strategies};
  input.mesh = {flags.hosts, flags.workers_per_host, link_of("--link-within", flags.within),
                link_of("--link-between", flags.between)};
  std::optional<bench::Fit> fit;
  if (!flags.fit.empty()) {
    fit = bench::load_fit(flags.fit);
    if (const bench::CostLine* work = fit->find("server.work"))
      input.costs.server_s_per_byte = input.costs.update_s_per_byte = work->per_unit_s;
    input.costs.slowdown = fit->factor("slowdown", 1);
  }
  input.pass_time = pass_time(fit, flags.tflops);
  if (!flags.memory.empty()) input.memory_bytes = static_cast<double>(parse_bytes("--memory", flags.memory));
  return input;
}

std::string ms(double seconds) { return number(1e3 * seconds, seconds < 0.01 ? 2 : 1); }

void print(const std::vector<PlanRow>& rows, const PlanFlags& flags, const PlanInput& input) {
  const bool text = false;
  fmt::print("{} workers on {} hosts; {} within a host, {} between hosts\n", input.mesh.workers(), input.mesh.hosts,
             net::to_string(input.mesh.within), net::to_string(input.mesh.between));
  TextTable table(
      {"strategy", "hosts", "step ms", "exposed", text ? "tokens/s" : "samples/s", "per host", "sent MB", "bound by"});
  std::size_t shown = 0;
  for (const PlanRow& row : rows) {
    if (shown++ == flags.top) break;
    table.add({row.label, std::to_string(row.hosts), ms(row.step.step_s), percent(row.step.exposed_s / row.step.step_s),
               number(row.samples_per_s, 0), number(row.samples_per_s / static_cast<double>(row.hosts), 1),
               number(row.sent_bytes / 1e6, 1), row.step.bound});
  }
  fmt::print("{}", table.plain(80));
}

int plan(const PlanFlags& flags, const App& app) {
  const PlanInput input = input_of(flags);
  const std::vector<PlanRow> rows = plan_rows(input, app);
  print(rows, flags, input);
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
  command.add("--link-between", flags->between, "RATE[,DELAY] of each host's network card").show_default();
  command.add("--memory", flags->memory, "memory of each process, such as 80G");
  command.add("--fit", flags->fit, "costs that psring fit has measured");
  command.add("--tflops", flags->tflops,
              "10^12 operations that a worker computes in a second; replaces measured times");
  command.add("--top", flags->top, "rows to print").show_default();
  add_job_flags(command, flags->job);
  command.add_footer("Nothing is started.");
  return [flags](const Invocation& invocation) { return plan(*flags, invocation.app); };
}

}  // namespace psring::cli
