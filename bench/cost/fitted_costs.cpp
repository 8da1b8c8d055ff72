#include <algorithm>

#include <psring/bench/cost/fitted_costs.h>

namespace psring::bench {
namespace {

MessageCosts message_costs(const Fit& fit, const std::string& way) {
  MessageCosts costs;
  if (const CostLine* hop = fit.find("hop." + way)) {
    costs.hop_s = hop->fixed_s;
    costs.hop_s_per_byte = hop->per_unit_s;
  }
  if (const CostLine* work = fit.find("work." + way)) {
    costs.work_s = work->fixed_s;
    costs.work_s_per_byte = work->per_unit_s;
  }
  // A message alone wakes its receiver up. In a batch each server is woken up by the first message in a row, and the
  // worker by the first answer.
  if (const CostLine* batch = fit.find("batch." + way)) {
    constexpr double kWoken = (1 + 1.0 / kBatchOfMessages) / (2 * kMessagesInRow);  // part of the receivers
    costs.wake_s = std::clamp((costs.work_s - batch->fixed_s) / (1 - kWoken), 0.0, costs.work_s);
    costs.work_s -= costs.wake_s;
  }
  return costs;
}

double per_unit(const Fit& fit, const std::string& name) {
  const CostLine* line = fit.find(name);
  return line == nullptr ? 0 : line->per_unit_s;
}

}  // namespace

std::string update_line(const JobOptions& job) {
  if (job.optimizer == "sgd" && job.momentum.value_or(0) != 0) return "update.sgd-momentum";
  // 8-bit state is decoded and encoded around the same update; that time is not measured by itself.
  return "update." + (job.optimizer == "adamw-8bit" ? "adamw" : job.optimizer);
}

HostCosts fitted_costs(const Fit& fit, const JobOptions& job, bool several_hosts) {
  const bool shaped = !job.link.empty();
  const std::string tcp = job.encrypt ? "tcp-encrypted" : "tcp";
  const bool shared = !several_hosts && job.transport != "tcp";
  HostCosts costs;
  costs.collective = message_costs(fit, shaped ? "ring.shaped" : "ring." + tcp);
  costs.exchange = message_costs(fit, shaped ? "server.shaped" : shared ? "server.shm" : "server." + tcp);
  costs.aggregate_s_per_byte = per_unit(fit, "server.aggregate") / sizeof(float);
  costs.update_s_per_byte = per_unit(fit, update_line(job)) / update_bytes_per_element(job, DType::f32, DType::f32);
  costs.within_hop_s = message_costs(fit, "server.shm").hop_s;
  costs.copy_s_per_byte = per_unit(fit, "memory.copy");
  costs.sleep_s = fit.factor("sleep_s", 0);
  costs.slowdown = fit.factor("slowdown", 1);
  costs.deviation = fit.factor("deviation", 0);
  costs.processors = static_cast<double>(fit.processors);
  costs.one_host = shaped;
  return costs;
}

}  // namespace psring::bench
