#include <optional>

#include <psring/cli/doctor/doctor_checks.h>
#include <psring/cli/train/job_memory.h>
#include <psring/cli/train/launch_checks.h>
#include <psring/common/base/text/error.h>
#include <psring/common/device/mapping.h>

namespace psring::cli {
namespace {

/// Returns the number of the job's processes on this host, with the coordinator.
std::size_t processes_here(const JobOptions& job, std::size_t agents, std::size_t here) {
  return 1 + (here * (job.workers + job.server_processes()) + agents - 1) / agents;
}

/// Returns nothing if the strategy cannot be made here, such as one that exchanges messages as it is made: the workers
/// will tell what is wrong.
std::optional<double> booked_here(worker::TrainSetup& setup, std::size_t agents, std::size_t here) {
  try {
    return static_cast<double>(job_memory(setup, agents, here).host_bytes);
  } catch (const Error&) {
    return std::nullopt;
  }
}

}  // namespace

void check_host(const JobOptions& job, std::size_t agents, std::size_t here, const std::string& listen) {
  const net::Endpoint at = net::resolve_endpoint("--listen", listen, 0);
  if (agents > here && net::is_any_address(at))
    fail(ErrorKind::usage, "--listen {}: name an address of this host that the other hosts reach", listen);
  const bool loopback = net::is_loopback(at);
  const Examination examination{.processes = processes_here(job, agents, here)};
  for (const HostCheck& check : doctor_checks()) {
    if (check.at_launch == AtLaunch::never || (check.at_launch == AtLaunch::if_loopback && !loopback)) continue;
    const Judgement judged = judge(check, examination);
    if (judged.level == Level::fail)
      fail(ErrorKind::data, "this host cannot run the job: {}: {} -> {}", check.name, judged.figure, judged.cure);
  }
}

void check_memory(worker::TrainSetup& setup, std::size_t agents, std::size_t here) {
  if (setup.job().device != "cpu") return;
  const std::optional<double> booked = booked_here(setup, agents, here);
  const double bytes = static_cast<double>(host_memory_bytes());
  constexpr double kGiB = 1 << 30;
  if (booked && *booked > bytes)
    fail(ErrorKind::data,
         "--model {}: the job's processes on this host book {:.4g} GiB, and it has {:.4g} GiB of memory; psring memory "
         "shows the parts",
         setup.job().model, *booked / kGiB, bytes / kGiB);
}

}  // namespace psring::cli
