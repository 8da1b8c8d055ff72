#include <algorithm>

#include <psring/bench/predict/fitted_costs.h>
#include <psring/bench/predict/timed_job.h>
#include <psring/common/base/text/spec.h>

namespace psring::bench {
namespace {

MessageCosts collective_costs(const Fit& fit, const std::string& way) {
  const CostLine& hop = fit.line("hop." + way);
  const CostLine& work = fit.line("work." + way);
  return {.hop_s = hop.fixed_s,
          .hop_s_per_byte = hop.per_unit_s,
          .work_s = work.fixed_s,
          .work_s_per_byte = work.per_unit_s};
}

/// A message alone wakes its receiver up. In a batch each server is woken up by the first message in a row, and the
/// worker by the first answer.
MessageCosts exchange_costs(const Fit& fit, const std::string& way) {
  constexpr double kWoken = (1 + 1.0 / kBatchOfMessages) / (2 * kMessagesInRow);  // part of the receivers
  MessageCosts costs = collective_costs(fit, way);
  costs.wake_s = std::clamp((costs.work_s - fit.line("batch." + way).fixed_s) / (1 - kWoken), 0.0, costs.work_s);
  costs.work_s -= costs.wake_s;
  return costs;
}

}  // namespace

std::string update_line(const std::string& name, const optim::Optimizer& rule) {
  if (name == "sgd" || name == "momentum") return rule.slots() == 0 ? "update.sgd" : "update.sgd-momentum";
  // 8-bit state is decoded and encoded around the same update; that time is not measured by itself.
  return "update." + (name == "adamw-8bit" ? "adamw" : name);
}

HostCosts message_costs(const Fit& fit, const JobOptions& job, const worker::StrategyKind& kind, const Mesh& mesh) {
  const bool shaped = !job.link.empty();
  const std::string tcp = job.encrypt ? "tcp-encrypted" : "tcp";
  HostCosts costs{.processors = static_cast<double>(fit.processors), .one_host = shaped};
  if (job.workers > 1 && (kind.ring || job.mesh().divides_model())) {
    costs.collective = collective_costs(fit, shaped ? "ring.shaped" : "ring." + tcp);
    if (mesh.workers_per_host > 1) {
      costs.within_hop_s = fit.line("hop.server.shm").fixed_s;
      costs.copy_s_per_byte = fit.line("memory.copy").per_unit_s;
    }
  }
  if (kind.has_servers()) {
    const bool shared = mesh.hosts == 1 && job.transport != "tcp";
    costs.exchange = exchange_costs(fit, shaped ? "server.shaped" : shared ? "server.shm" : "server." + tcp);
  }
  if (kind.servers || job.workers > 1)
    costs.aggregate_s_per_byte = fit.line("server.aggregate").per_unit_s / sizeof(float);
  if (sleeps(job)) costs.sleep_s = fit.factor("sleep_s");
  return costs;
}

void add_update(const Fit& fit, const JobOptions& job, const optim::Optimizer& rule, HostCosts& costs) {
  const CostLine& line = fit.line(update_line(Spec::parse("--optimizer", job.optimizer).name(), rule));
  costs.state_values = rule.slots();
  costs.update_s_per_byte = line.per_unit_s / update_bytes_per_element(job, costs.state_values, DType::f32, DType::f32);
}

HostCosts fitted_costs(const Fit& fit, const JobOptions& job, const worker::StrategyKind& kind,
                       const optim::Optimizer& rule, const Mesh& mesh) {
  HostCosts costs = message_costs(fit, job, kind, mesh);
  add_update(fit, job, rule, costs);
  if (sleeps(job)) return costs;
  costs.slowdown = fit.factor("slowdown");
  costs.deviation = fit.factor("deviation");
  return costs;
}

}  // namespace psring::bench
