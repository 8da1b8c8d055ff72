#include <fmt/format.h>

#include <psring/cli/plan/plan_document.h>
#include <psring/cli/plan/plan_text.h>
#include <psring/common/proc/options/check.h>
#include <psring/worker/predict_job.h>

namespace psring::cli {
namespace {

Json to_json(const net::LinkSpec& link) {
  return {{"bits_per_second", link.bits_per_second}, {"delay_s", seconds(link.delay)}};
}

Json to_json(const options::Given& given) {
  Json object = Json::object();
  for (const auto& [name, text] : given) object[name] = text;
  return object;
}

/// Says in comments how a job of several hosts is started.
std::string launch_comment(const PlanRow& row, const bench::Mesh& mesh) {
  if (mesh.hosts == 1 || !row.job.link.empty()) return "";
  if (row.hosts > mesh.hosts)
    return fmt::format(
        "# On {} hosts, {} of them for servers: psring coordinator --config FILE, then psring-worker and "
        "psring-server\n"
        "# on their hosts; or psring manifests --kubernetes --config FILE.\n",
        row.hosts, row.job.servers);
  return fmt::format(
      "# On {} hosts: psring train --config FILE --nodes {} --listen ADDR:PORT --key KEY, and psring agent on the\n"
      "# others; or srun psring train --config FILE within sbatch of Slurm.\n",
      row.hosts, row.hosts);
}

std::string quoted(const std::string& text) {
  const char quote = text.find('"') == std::string::npos ? '"' : '\'';
  return quote + text + quote;
}

Json to_json(const RowBytes& bytes) {
  return {{"worker_sends", bytes.worker_sends},
          {"worker_receives", bytes.worker_receives},
          {"server_receives", bytes.server_receives},
          {"server_sends", bytes.server_sends}};
}

Json to_json(const PlanRow& row, const options::Given& given) {
  return {{"label", row.label},
          {"series", row.series},
          {"strategy", row.job.strategy},
          {"servers", row.job.servers},
          {"placement", row.job.placement},
          {"options", to_json(job_options(row, given))},
          {"inexact", row.inexact},
          {"hosts", row.hosts},
          {"step_s", row.step.step_s},
          {"compute_s", row.step.compute_s},
          {"exposed_s", row.step.exposed_s},
          {"bubble", row.step.bubble},
          {"mesh", {{"data", row.job.data_workers()}, {"tensor", row.job.tensor}, {"pipeline", row.job.pipeline}}},
          {row.tokens ? "tokens_per_s" : "samples_per_s", row.samples_per_s},
          {"per_host", row.per_host()},
          {"sent_bytes", row.sent_bytes},
          {"row_bytes", row.memory.rows.empty() ? Json() : to_json(row.row_bytes())},
          {"process_bytes", row.process_bytes},
          {"worker_memory", worker::to_json(row.memory.worker)},
          {"server_memory", worker::to_json(row.memory.server)},
          {"guest_memory", worker::to_json(row.memory.guest)},
          {"fits", row.fits},
          {"bound", row.step.bound}};
}

}  // namespace

Json to_json(const bench::Mesh& mesh) {
  return {{"hosts", mesh.hosts},
          {"workers_per_host", mesh.workers_per_host},
          {"workers", mesh.workers()},
          {"within", to_json(mesh.within)},
          {"between", to_json(mesh.between)},
          {"one_machine", mesh.one_machine}};
}

Json to_json(const PlanRows& plan, const options::Given& given) {
  Json rows = Json::array();
  for (const PlanRow& row : plan.rows) rows.push_back(to_json(row, given));
  const auto in_both = [&](const auto& text) {
    return Json{{"en", text(plan, Language::en)}, {"zh", text(plan, Language::zh)}};
  };
  return {
      {"rows", rows}, {"reason", in_both(plan_reason)}, {"costs", in_both(costs_note)}, {"left_out", plan.left_out}};
}

Json to_json(const PlanSweep& sweep, const std::vector<PlanPoint>& points, const options::Given& given) {
  Json list = Json::array();
  for (const PlanPoint& point : points) {
    Json one = {{"value", point.value}, {"x", point.x}, {"mesh", to_json(point.mesh)}};
    const Json plan = to_json(point.plan, given);
    for (const auto& [key, value] : plan.items()) one[key] = value;
    list.push_back(std::move(one));
  }
  Json crossings = Json::array();
  for (const PlanCrossing& crossing : find_crossings(points))
    crossings.push_back({{"of", crossing.of == PlanCrossing::Of::step_s ? "step_s" : "per_host"},
                         {"before", crossing.before},
                         {"after", crossing.after},
                         {"point", crossing.point},
                         {"x", crossing.x},
                         {"y", crossing.y}});
  return {{"sweep", sweep.name}, {"points", list}, {"crossings", crossings}};
}

options::Given job_options(const PlanRow& row, const options::Given& given) {
  options::Given all = given;
  for (const auto& [name, text] : row.choice.options) all[name] = text;
  for (const auto& [flag, line] : row.left_out) all.erase(flag.substr(2));  // train would refuse it
  all["strategy"] = row.job.strategy;
  all["workers"] = std::to_string(row.job.workers);
  if (row.kind->has_servers() && !row.kind->one_server) all["servers"] = servers_text(row.job);
  return all;
}

std::string config_of(const PlanRow& row, const bench::Mesh& mesh, const options::Given& given) {
  std::string text = fmt::format("# psring plan: {}, {:.4g} ms a step\n", row.label, 1e3 * row.step.step_s);
  if (row.job.workers > options::kMostProcesses)
    text += fmt::format("# psring train starts at most {} workers.\n", options::kMostProcesses);
  text += launch_comment(row, mesh);
  for (const auto& [name, value] : job_options(row, given)) text += fmt::format("{} = {}\n", name, quoted(value));
  return text;
}

}  // namespace psring::cli
