#include <psring/bench/predict/served_places.h>

namespace psring::bench {
namespace {

constexpr double kMostFrames = 4'000;  // of a step, each way
constexpr std::size_t kLeastWorkers = 8;

std::size_t part_of(std::size_t count, std::size_t factor) { return (count + factor - 1) / factor; }

double ratio(std::size_t whole, std::size_t part) {
  return part == 0 ? 1 : static_cast<double>(whole) / static_cast<double>(part);
}

}  // namespace

/// Workers of one host have a link each, as hosts with one worker do.
ServedPlaces::ServedPlaces(const TimedJob& job, double waves)
    : between_(job.mesh.hosts > 1 ? job.mesh.between : job.mesh.within), within_(job.mesh.within) {
  const bool one = job.mesh.hosts <= 1;
  const std::size_t hosts = one ? job.mesh.workers_per_host : job.mesh.hosts;
  per_host_ = one ? 1 : job.mesh.workers_per_host;
  const std::size_t standalone = job.job.standalone_servers();
  const std::size_t colocated = job.job.servers - standalone;
  std::size_t factor = 1;
  const auto frames = [&] {
    const std::size_t servers = part_of(standalone, factor) + part_of(colocated, factor);
    return static_cast<double>(part_of(hosts, factor) * per_host_ * servers) * waves;
  };
  while (frames() > kMostFrames && part_of(hosts, 2 * factor) * per_host_ >= kLeastWorkers &&
         part_of(hosts, 2 * factor) > 1)
    factor *= 2;
  hosts_ = part_of(hosts, factor);
  workers_ = hosts_ * per_host_;
  standalone_ = part_of(standalone, factor);
  colocated_ = part_of(colocated, factor);
  first_colocated_ = standalone;
  workers_each_ = ratio(hosts, hosts_);
  standalone_each_ = ratio(standalone, standalone_);
  colocated_each_ = ratio(colocated, colocated_);
  for (std::size_t place = 0; place < count(); ++place) {
    const std::size_t process = place < workers_ + standalone_ ? place : place - workers_ - standalone_;
    process_of_.push_back(process);
    host_of_.push_back(is_worker(process) ? process / per_host_ : hosts_ + process - workers_);
  }
  if (hosts_ > 1) between_factor_ = (1 - 1 / static_cast<double>(hosts)) / (1 - 1 / static_cast<double>(hosts_));
  within_factor_ = static_cast<double>(hosts_) / static_cast<double>(hosts);
}

double ServedPlaces::bytes_factor(std::size_t worker, std::size_t server_place) const {
  if (!is_worker(process_of(server_place))) return 1;
  return host_of(worker) == host_of(server_place) ? within_factor_ : between_factor_;
}

double ServedPlaces::stands_for(std::size_t place) const {
  if (is_worker(place)) return workers_each_;
  return place < workers_ + standalone_ ? standalone_each_ : colocated_each_;
}

}  // namespace psring::bench
